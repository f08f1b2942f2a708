/* A wall clock that a test can step. Loaded before the C library (LD_PRELOAD), it reads three numbers of microseconds from
 * the file $MORTISE_CLOCK. It adds the first to the real time that the process reads. The second is a step that the clock
 * takes when the process next asks for its processor time, as the module does within its timers. It adds the third to the
 * boot-time clock, as after a suspend of that length.
 *
 * If $MORTISE_BOOT_ID names a file, the process seems to be on another machine: it reads that file for the kernel's boot id
 * and $MORTISE_MACHINE_ID for the machine's, and its boot-time clock began at another time. No other clock
 * changes. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* How much earlier the other machine was started, in seconds. */
#define STARTED_EARLIER 1000000

static volatile int64_t *offset; /* and the step, and the boot-time clock's */
static const char *boot_id, *machine_id;

/* The server writes its title over its environment. */
static const char *copy_of(const char *name) {
    const char *value = getenv(name);
    return value ? strdup(value) : NULL;
}

__attribute__((constructor)) static void find_offset(void) {
    boot_id = copy_of("MORTISE_BOOT_ID");
    machine_id = copy_of("MORTISE_MACHINE_ID");
    const char *path = getenv("MORTISE_CLOCK");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *page = mmap(NULL, 3 * sizeof *offset, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (page != MAP_FAILED) offset = page;
}

static void shift(struct timespec *time, int clock) {
    if (!offset) return;
    int64_t step = offset[clock];
    time->tv_sec += step / 1000000;
    time->tv_nsec += step % 1000000 * 1000;
    if (time->tv_nsec < 0) {
        time->tv_nsec += 1000000000;
        time->tv_sec -= 1;
    } else if (time->tv_nsec >= 1000000000) {
        time->tv_nsec -= 1000000000;
        time->tv_sec += 1;
    }
}

int clock_gettime(clockid_t id, struct timespec *time) {
    /* A direct system call, because this function hides the C library's. */
    int result = (int)syscall(SYS_clock_gettime, id, time);
    if (result == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) shift(time, 0);
    if (result == 0 && id == CLOCK_BOOTTIME) shift(time, 2);
    /* Writes nothing without a step: a test may be writing. */
    if (id == CLOCK_THREAD_CPUTIME_ID && offset && offset[1]) {
        offset[0] += offset[1];
        offset[1] = 0;
    }
    if (result == 0 && id == CLOCK_BOOTTIME && boot_id) time->tv_sec += STARTED_EARLIER;
    return result;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    (void)zone;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}

/* As Rust's library opens files. */
int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    if (boot_id && strcmp(path, "/proc/sys/kernel/random/boot_id") == 0) path = boot_id;
    if (machine_id && strcmp(path, "/etc/machine-id") == 0) path = machine_id;
    return openat64(AT_FDCWD, path, flags, mode);
}

/* Some servers load modules so that modules find the C library's functions before these. */
void *dlopen(const char *file, int mode) {
    void *(*real)(const char *, int) = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
    return real(file, mode & ~RTLD_DEEPBIND);
}
