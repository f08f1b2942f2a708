/* Loaded before the C library (LD_PRELOAD), it gives the process no random numbers once the file $MORTISE_NO_ENTROPY
 * exists. The module's first hash table on a thread needs some, and panics: a test can cause a panic this
 * way. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static const char *file;

/* The server writes its title over its environment. */
__attribute__((constructor)) static void find_file(void) {
    const char *path = getenv("MORTISE_NO_ENTROPY");
    file = path ? strdup(path) : NULL;
}

static int none_left(void) { return file && access(file, F_OK) == 0; }

ssize_t getrandom(void *buffer, size_t len, unsigned flags) {
    if (none_left()) {
        errno = ENOSYS;
        return -1;
    }
    return syscall(SYS_getrandom, buffer, len, flags);
}

int open64(const char *path, int flags, ...) {
    if (none_left() && strcmp(path, "/dev/urandom") == 0) {
        errno = ENOENT;
        return -1;
    }
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open64");
    return real(path, flags, mode);
}
