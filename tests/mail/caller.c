/* A module that runs a command for nobody: `caller.call command [arg …]`. Without the server's header: what it needs of
 * the interface it asks for by name. */

#include <stddef.h>

static int (*Reply)(void *ctx, void *reply);
static void *(*Call)(void *ctx, const char *command, const char *format, ...);
static const char *(*Text)(void *string, size_t *len);
static void (*FreeReply)(void *reply);

static int call(void *ctx, void **argv, int argc) {
    void *reply = Call(ctx, Text(argv[1], NULL), "vE!", argv + 2, (size_t)argc - 2);
    Reply(ctx, reply);
    FreeReply(reply);
    return 0;
}

int RedisModule_OnLoad(void *ctx, void **argv, int argc) {
    (void)argv, (void)argc;
    int (*get)(const char *name, void *function) = ((void **)ctx)[0];
    void (*set_attributes)(void *ctx, const char *name, int version, int api);
    int (*create)(void *ctx, const char *name, void *function, const char *flags, int first, int last, int step);
    get("RedisModule_SetModuleAttribs", &set_attributes);
    get("RedisModule_CreateCommand", &create);
    get("RedisModule_Call", &Call);
    get("RedisModule_StringPtrLen", &Text);
    get("RedisModule_ReplyWithCallReply", &Reply);
    get("RedisModule_FreeCallReply", &FreeReply);
    set_attributes(ctx, "caller", 1, 1);
    return create(ctx, "caller.call", call, "write", 0, 0, 0);
}
