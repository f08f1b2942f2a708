package mortise.spring;

import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Inherited;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/**
 * Runs the method while its thread holds a lock. {@link EnableLocked} makes it work. The fencing token is
 * {@link LockedMethods#token()} inside. As with every Spring annotation, a call from the same object bypasses it.
 *
 * <pre>{@code
 * @Locked(key = "'stock:' + #id", waitFor = 5_000)
 * void sell(long id) {
 *     store.write(id, LockedMethods.token());
 * }
 * }</pre>
 */
@Documented
@Inherited
@Target({ElementType.METHOD, ElementType.TYPE})
@Retention(RetentionPolicy.RUNTIME)
public @interface Locked {
    /** The key of the lock, as an expression: parameters by name ({@code #id}) or position ({@code #p0}), {@code @bean}, … */
    String key();

    /** How long the lock outlives a machine that is gone, in milliseconds. It is renewed while the method runs. */
    long lease() default 30_000;

    /** How long to wait for it, in milliseconds; without limit if negative. Then {@link mortise.LockException.Busy}. */
    long waitFor() default -1;

    /** To read, beside other readers. */
    boolean read() default false;
}
