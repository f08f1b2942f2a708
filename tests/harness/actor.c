/* Another module, which does what other modules may do:
 *
 *   ACTOR.CALL command [arg ...]              runs a command without a user
 *   ACTOR.THREAD command [arg ...]            runs it on its own thread, which takes the server's global lock
 *   ACTOR.ON event key times command [arg ...]  runs it within the key-space event of that key, this many times
 *   ACTOR.FIRED                               how often such commands ran
 *   ACTOR.BREAK command key                   makes calls of that command fail from now on whose second argument is that key
 *   ACTOR.FAILED                              how many calls failed because of that
 *   ACTOR.MEND                                makes them succeed again
 *   ACTOR.REPLICATE key effect                sends replicas a LOCK.APPLY, which no client may send
 *
 * It does without the server's header, and looks the functions up by name. */

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define NOTIFY_ALL_AND_MORE ((1 << 14) | (1 << 13) | (1 << 11) | 0x7fc) /* new, module, key miss, and `KEA` */

static void *(*Call)(void *ctx, const char *command, const char *format, ...);
static const char *(*Text)(void *string, size_t *len);
static void *(*Hold)(void *ctx, void *string);
static void *(*FreeString)(void *ctx, void *string);
static int (*Replicate)(void *ctx, const char *command, const char *format, ...);
static int (*Reply)(void *ctx, void *reply);
static int (*ReplyNumber)(void *ctx, long long number);
static int (*ReplyText)(void *ctx, const char *text);
static void (*FreeReply)(void *reply);
static void *(*Block)(void *ctx, void *reply, void *timeout, void *freed, long long ms);
static int (*Unblock)(void *blocked, void *data);
static void *(*ThreadContext)(void *blocked);
static void (*FreeThreadContext)(void *ctx);
static void (*Lock)(void *ctx);
static void (*Unlock)(void *ctx);
static void *(*FilterArg)(void *filter, int position);
static int (*FilterReplace)(void *filter, int position, void *string);
static void *(*NewString)(void *ctx, const char *text, size_t len);

static int is(void *string, const char *text, size_t len) {
    size_t found;
    const char *bytes = Text(string, &found);
    return found == len && strncasecmp(bytes, text, len) == 0;
}

static int same(void *one, void *other) {
    size_t len;
    const char *text = Text(other, &len);
    return is(one, text, len);
}

/* A command with its arguments. */
struct command {
    void **args;
    int count;
};

static struct command keep(void **argv, int argc) {
    struct command kept = {malloc(sizeof(void *) * (size_t)argc), argc};
    for (int at = 0; at < argc; at++) kept.args[at] = Hold(NULL, argv[at]);
    return kept;
}

static void drop(struct command command) {
    for (int at = 0; at < command.count; at++) FreeString(NULL, command.args[at]);
    free(command.args);
}

static void *run(void *ctx, struct command command) {
    return Call(ctx, Text(command.args[0], NULL), "vE!", command.args + 1, (size_t)command.count - 1);
}

static int on_call(void *ctx, void **argv, int argc) {
    if (argc < 2) return ReplyText(ctx, "a command is missing");
    void *reply = run(ctx, (struct command){argv + 1, argc - 1});
    Reply(ctx, reply);
    FreeReply(reply);
    return 0;
}

struct work {
    void *blocked;
    struct command command;
};

static void *work(void *data) {
    struct work *work = data;
    void *ctx = ThreadContext(work->blocked);
    Lock(ctx);
    void *reply = run(ctx, work->command);
    Reply(ctx, reply);
    FreeReply(reply);
    drop(work->command);
    Unlock(ctx);
    FreeThreadContext(ctx);
    Unblock(work->blocked, NULL);
    free(work);
    return NULL;
}

static int on_thread(void *ctx, void **argv, int argc) {
    if (argc < 2) return ReplyText(ctx, "a command is missing");
    struct work *job = malloc(sizeof *job);
    job->blocked = Block(ctx, NULL, NULL, NULL, 0);
    job->command = keep(argv + 1, argc - 1);
    pthread_t thread;
    pthread_create(&thread, NULL, work, job);
    pthread_detach(thread);
    return 0;
}

/* Which command runs within which event. */
#define MOST 64
static struct {
    void *event, *key;
    long left;
    struct command command;
} reactions[MOST];
static int reacting;
static long long fired;

static int on_event(void *ctx, int class, const char *event, void *key) {
    (void)class;
    for (int at = 0; at < reacting; at++) {
        if (reactions[at].left == 0 || !same(key, reactions[at].key)) continue;
        if (!is(reactions[at].event, event, strlen(event))) continue;
        reactions[at].left--;
        fired++;
        void *reply = run(ctx, reactions[at].command);
        if (reply) FreeReply(reply);
    }
    return 0;
}

static int on_on(void *ctx, void **argv, int argc) {
    if (argc < 5 || reacting == MOST) return ReplyText(ctx, "not possible");
    reactions[reacting].event = Hold(NULL, argv[1]);
    reactions[reacting].key = Hold(NULL, argv[2]);
    reactions[reacting].left = atol(Text(argv[3], NULL));
    reactions[reacting].command = keep(argv + 4, argc - 4);
    reacting++;
    return ReplyText(ctx, "OK");
}

static int on_fired(void *ctx, void **argv, int argc) {
    (void)argv, (void)argc;
    return ReplyNumber(ctx, fired);
}

static void *broken_command, *broken_key;
static long long failed;

static void filter(void *call) {
    if (!broken_key) return;
    void *name = FilterArg(call, 0), *key = FilterArg(call, 2);
    if (name && key && same(name, broken_command) && same(key, broken_key)) {
        FilterReplace(call, 0, NewString(NULL, "ACTOR.NOBODY", 12));
        failed++;
    }
}

static int on_break(void *ctx, void **argv, int argc) {
    if (argc != 3) return ReplyText(ctx, "a command and a key are missing");
    broken_command = Hold(NULL, argv[1]);
    broken_key = Hold(NULL, argv[2]);
    return ReplyText(ctx, "OK");
}

static int on_failed(void *ctx, void **argv, int argc) {
    (void)argv, (void)argc;
    return ReplyNumber(ctx, failed);
}

static int on_mend(void *ctx, void **argv, int argc) {
    (void)argv, (void)argc;
    broken_key = NULL;
    return ReplyText(ctx, "OK");
}

static int on_replicate(void *ctx, void **argv, int argc) {
    if (argc != 3) return ReplyText(ctx, "a key and an effect are missing");
    Replicate(ctx, "LOCK.APPLY", "ss", argv[1], argv[2]);
    return ReplyText(ctx, "OK");
}

int RedisModule_OnLoad(void *ctx, void **argv, int argc) {
    (void)argv, (void)argc;
    int (*get)(const char *name, void *function) = ((void **)ctx)[0];
    void (*set_attributes)(void *ctx, const char *name, int version, int api);
    int (*create)(void *ctx, const char *name, void *function, const char *flags, int first, int last, int step);
    int (*subscribe)(void *ctx, int classes, void *function);
    void *(*add_filter)(void *ctx, void *function, int flags);
    get("RedisModule_SetModuleAttribs", &set_attributes);
    get("RedisModule_CreateCommand", &create);
    get("RedisModule_SubscribeToKeyspaceEvents", &subscribe);
    get("RedisModule_RegisterCommandFilter", &add_filter);
    get("RedisModule_Call", &Call);
    get("RedisModule_StringPtrLen", &Text);
    get("RedisModule_HoldString", &Hold);
    get("RedisModule_FreeString", &FreeString);
    get("RedisModule_Replicate", &Replicate);
    get("RedisModule_ReplyWithCallReply", &Reply);
    get("RedisModule_ReplyWithLongLong", &ReplyNumber);
    get("RedisModule_ReplyWithSimpleString", &ReplyText);
    get("RedisModule_FreeCallReply", &FreeReply);
    get("RedisModule_BlockClient", &Block);
    get("RedisModule_UnblockClient", &Unblock);
    get("RedisModule_GetThreadSafeContext", &ThreadContext);
    get("RedisModule_FreeThreadSafeContext", &FreeThreadContext);
    get("RedisModule_ThreadSafeContextLock", &Lock);
    get("RedisModule_ThreadSafeContextUnlock", &Unlock);
    get("RedisModule_CommandFilterArgGet", &FilterArg);
    get("RedisModule_CommandFilterArgReplace", &FilterReplace);
    get("RedisModule_CreateString", &NewString);
    set_attributes(ctx, "actor", 1, 1);
    return create(ctx, "actor.call", on_call, "write", 0, 0, 0) ||
           create(ctx, "actor.thread", on_thread, "write", 0, 0, 0) ||
           create(ctx, "actor.on", on_on, "", 0, 0, 0) ||
           create(ctx, "actor.fired", on_fired, "", 0, 0, 0) ||
           create(ctx, "actor.break", on_break, "", 0, 0, 0) ||
           create(ctx, "actor.failed", on_failed, "", 0, 0, 0) ||
           create(ctx, "actor.mend", on_mend, "", 0, 0, 0) ||
           create(ctx, "actor.replicate", on_replicate, "write", 0, 0, 0) ||
           subscribe(ctx, NOTIFY_ALL_AND_MORE, on_event) || !add_filter(ctx, filter, 0);
}
