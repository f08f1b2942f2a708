package kotlin.coroutines;

/** Stands for Kotlin's interface, the last parameter of a suspending function. */
public interface Continuation {}
