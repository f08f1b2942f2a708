// The client that is given stays its owner's: locks open connections of their own, made like those of the client.
// Types of ioredis and node-redis are not imported, so that either may be missing.

/** Anything of ioredis (`Redis`, `Cluster`) or node-redis (`createClient`, `createCluster`, `createSentinel`). */
export type Client =
  | { call(...args: never[]): unknown; duplicate(...args: never[]): unknown }
  | { nodes(role?: never): unknown; refreshSlotsCache(callback?: never): unknown }
  | { sendCommand(...args: never[]): unknown; duplicate(...args: never[]): unknown };

export interface LocksOptions {
  /** Milliseconds that a lock lives without renewal, 3 at least. 30,000 if not given. */
  lease?: number;
  /**
   * How often, in milliseconds, to look where something that is no lock of this kind has the key, as what another library
   * took there with SET NX. Not given: that is a RefusedError.
   */
  poll?: number | null;
}

export interface AcquireOptions extends LocksOptions {
  /** Milliseconds to wait; 0 asks once, and so does less. Without a limit for `acquire`, 0 for `tryAcquire`, if not given. */
  wait?: number;
  /** "read" shares the lock with other readers. "write" if not given. */
  mode?: "read" | "write";
  /** Ends the wait; nothing stays behind. */
  signal?: AbortSignal;
  /** Renewed at a third of its lease until it is released. true if not given; false: it ends with its lease, or `extend` it. */
  renew?: boolean;
  /** Milliseconds after which it is renewed no more, 3 at least. No end if not given. */
  maxHold?: number;
  /** A name for who asks: a deadlock between tasks with names is found by the server, and told. */
  task?: string;
}

export class Lock implements AsyncDisposable {
  private constructor();
  readonly name: string;
  /** The fencing token, larger than every one granted before: for the store that the lock protects, which refuses smaller ones. */
  readonly token: number;
  /** The name under which it is held, as LOCK.INFO shows it. */
  readonly owner: string;
  /** Whether it may still be believed in. */
  readonly held: boolean;
  /** Aborts, with a LostError as its reason, in the moment in which the lock is lost. */
  readonly signal: AbortSignal;
  /** Gives it back. Rejects with a LostError if it was lost before. */
  release(): Promise<void>;
  /** Holds it for `ms`, 3 at least, from now on. Rejects with a LostError if it is lost. */
  extend(ms: number): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

export class Locks implements AsyncDisposable {
  constructor(client: Client, options?: LocksOptions);
  /** A lock. Rejects with a BusyError if there is none within `wait`. */
  acquire(name: string, options?: AcquireOptions): Promise<Lock>;
  /** A lock, or null if there is none within `wait`. */
  tryAcquire(name: string, options?: AcquireOptions): Promise<Lock | null>;
  /** Runs `work` under the lock, and gives it back. Rejects with a LostError if it was lost meanwhile. */
  using<T>(name: string, work: (lock: Lock) => Promise<T> | T): Promise<T>;
  using<T>(name: string, options: AcquireOptions, work: (lock: Lock) => Promise<T> | T): Promise<T>;
  /** Leaves all that is waited for and all that is held. Whether the server has heard all of it within `ms` (2,000). */
  close(ms?: number): Promise<boolean>;
  [Symbol.asyncDispose](): Promise<void>;
}

export class LockError extends Error {
  /** The lock's name. */
  readonly key: string;
}
/** Somebody else held it for as long as this one was ready to wait. */
export class BusyError extends LockError {}
/** The lock was over before it was released. */
export class LostError extends LockError {}
/** The server found that this wait would never end; the text names the keys. */
export class DeadlockError extends LockError {}
/** The server refused; the text is its own. */
export class RefusedError extends LockError {}
/** The server could not be asked. */
export class UnreachableError extends LockError {}
