package mortise;

/** What a thread holds of one lock, and how often. The server knows of one hold. */
final class ThreadHold {
    final Held held;
    int reads;
    int writes;

    ThreadHold(Held held) {
        this.held = held;
    }
}
