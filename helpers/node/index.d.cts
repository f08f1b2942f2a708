// The client that is given stays its owner's: locks open connections of their own, made like those of the client.
// Types of ioredis and node-redis are not imported, so that either may be missing.

/** Anything of ioredis (`Redis`, `Cluster`) or node-redis (`createClient`, `createCluster`, `createSentinel`). */
export type Client =
  | { call(...args: never[]): unknown; duplicate(...args: never[]): unknown }
  | { sendCommand(...args: never[]): unknown; duplicate(...args: never[]): unknown }
  | { sendCommand(...args: never[]): unknown; getMasterNode(): unknown };

export {}; // of what follows, only what says `export` is exported

export interface LocksOptions {
  /** Milliseconds that a lock lives without renewal, 3 at least. 30,000 if not given. */
  lease?: number;
  /**
   * How many replicas must have each grant and each renewal before a lock relies on it. 0 if not given. If all clients name the number of
   * replicas that may ever be promoted, and each server has `lock.grace`, no failover lets two in.
   */
  replicas?: number;
}

export interface AcquireOptions extends Pick<LocksOptions, "lease"> {
  /** Milliseconds to wait; 0 asks once, and so does less. Without a limit for `acquire`, 0 for `tryAcquire`, if not given. */
  wait?: number;
  /** "read" shares the lock with other readers. "write" if not given. */
  mode?: "read" | "write";
  /** Ends the wait; nothing stays behind. */
  signal?: AbortSignal;
  /** Renewed at a third of its lease until it is released. true if not given; false: it ends with its lease, or `extend` it. */
  renew?: boolean;
  /** Milliseconds after which it is lost and left, if it was not released before; 3 at least. No end if not given. */
  maxHold?: number;
  /** The name of the task that asks. The server finds deadlocks between such tasks: then one of them gets a DeadlockError. */
  task?: string;
  /** A name for people to read, as in LOCK.INFO: a part of the owner, without ##. */
  holder?: string;
  /**
   * Milliseconds, 3 at least, for which the lock stays taken after its grant, however early it is released. A shorter lease is
   * raised to it, so that this holds where the process dies, too. 0 if not given: it is free when it is released.
   */
  atLeast?: number;
}

export type MultiOptions = Omit<AcquireOptions, "mode">;

export interface PermitOptions extends Omit<AcquireOptions, "mode"> {
  /** How many permits to take at once. 1 if not given. */
  permits?: number;
}

declare class Held implements AsyncDisposable {
  protected constructor();
  /** The fencing token, larger than every one granted before: for the store that the lock protects, which refuses smaller ones. */
  readonly token: number;
  /** The name under which it is held, as LOCK.INFO shows it. */
  readonly owner: string;
  /** Whether it may still be believed in. */
  readonly held: boolean;
  /** Aborts, with a LostError as its reason, when the lock is lost. */
  readonly signal: AbortSignal;
  /** Gives it back. Rejects with a LostError if it was lost before. */
  release(): Promise<void>;
  /**
   * Holds it for `ms`, 3 at least, from now on. Rejects with a LostError if it is not held, and with a RangeError if `maxHold` ends before.
   */
  extend(ms: number): Promise<void>;
  /**
   * Runs a command if the lock is held when the server runs it, and returns its reply: `lock.guard("SET", "stock:42", 17)`. Rejects with
   * a LostError if it is not held any more, and nothing was run; with a RefusedError for an error of the command itself.
   */
  guard(...command: [string, ...(string | number | Buffer)[]]): Promise<unknown>;
  [Symbol.asyncDispose](): Promise<void>;
}

export class Lock extends Held {
  readonly name: string;
  /**
   * Gives it to another name with a lease of `lease` ms, and lets nobody in between. The new token: who knows it and the name, in
   * whichever process, goes on with `Locks.takeOver`. What it had of `atLeast` ends. Rejects with a LostError if it was lost before;
   * after a RefusedError it is held as before. So it may be after an UnreachableError, as `held` says; otherwise nobody knows who has it,
   * and it is lost, and left under both names.
   */
  passTo(owner: string, lease: number): Promise<number>;
}

/** A lock of several names, granted in one instant, and lost as soon as it is lost at one of them. `guard` asks for the first name. */
export class MultiLock extends Held {
  readonly names: readonly string[];
}

export class Locks implements AsyncDisposable {
  constructor(client: Client, options?: LocksOptions);
  /** A lock. Rejects with a BusyError if there is none within `wait`. */
  acquire(name: string, options?: AcquireOptions): Promise<Lock>;
  /**
   * The locks of 1 to 16 names, to write: all in one instant or none, and nothing is held meanwhile. In a cluster the names are in one
   * slot, as by a {hash tag}.
   */
  acquire(names: readonly string[], options?: MultiOptions): Promise<MultiLock>;
  /** A lock, or null if there is none within `wait`. */
  tryAcquire(name: string, options?: AcquireOptions): Promise<Lock | null>;
  tryAcquire(names: readonly string[], options?: MultiOptions): Promise<MultiLock | null>;
  /** Runs `work` under the lock, and gives it back. Rejects with a LostError if it was lost meanwhile. */
  using<T>(name: string, work: (lock: Lock) => Promise<T> | T): Promise<T>;
  using<T>(name: string, options: AcquireOptions, work: (lock: Lock) => Promise<T> | T): Promise<T>;
  using<T>(names: readonly string[], work: (locks: MultiLock) => Promise<T> | T): Promise<T>;
  using<T>(names: readonly string[], options: MultiOptions, work: (locks: MultiLock) => Promise<T> | T): Promise<T>;
  /**
   * The lock that was passed on to the name `owner` by that token, or null if it is not held by it, or not any more: of several who
   * try, one gets it.
   */
  takeOver(name: string, owner: string, token: number, options?: Omit<AcquireOptions, "wait" | "mode" | "signal">): Promise<Lock | null>;
  /**
   * Lets the lock's holds, or that of `owner` (a name as LOCK.INFO shows it), end with their leases: holders learn of it at their
   * next renewal, and nobody else gets in before. The milliseconds until the last of them is over at the latest; null where nobody
   * holds it.
   */
  revoke(name: string, owner?: string): Promise<number | null>;
  /** Up to `limit` permits of that name are out at the same time. All users of a name give the same limit; the server stores none. */
  semaphore(name: string, limit: number): Semaphore;
  /**
   * Leaves all that it waits for and holds, and nothing of other Locks of the same client. Returns whether the server has confirmed all of it
   * within `ms` (2,000).
   */
  close(ms?: number): Promise<boolean>;
  [Symbol.asyncDispose](): Promise<void>;
}

export class Semaphore {
  private constructor();
  readonly name: string;
  readonly limit: number;
  /** A Lock that stands for its permits. Rejects with a BusyError if there are not as many within `wait`. */
  acquire(options?: PermitOptions): Promise<Lock>;
  /** The same, or null if there are not as many within `wait`. */
  tryAcquire(options?: PermitOptions): Promise<Lock | null>;
  /** Runs `work` with its permits, and gives them back. Rejects with a LostError if they were lost meanwhile. */
  using<T>(work: (permits: Lock) => Promise<T> | T): Promise<T>;
  using<T>(options: PermitOptions, work: (permits: Lock) => Promise<T> | T): Promise<T>;
  /** How many permits nobody has now. */
  available(): Promise<number>;
}

export class LockError extends Error {
  /** The lock's name, or names. */
  readonly key: string | readonly string[];
}
/** Somebody else held it for as long as this one was ready to wait. */
export class BusyError extends LockError {}
/** The lock was over before it was released. */
export class LostError extends LockError {}
/** The server found that this wait would never end; the text names the keys. */
export class DeadlockError extends LockError {}
/** The server refused; the text is its own. */
export class RefusedError extends LockError {}
/** The server could not be asked, or refused for as long as this one was ready to wait. */
export class UnreachableError extends LockError {}
/** Too few replicas had the lock in time. A new one was given back; one to be extended keeps the lease that it had. */
export class UnconfirmedError extends LockError {
  private constructor();
  readonly needed: number;
  readonly had: number;
}
