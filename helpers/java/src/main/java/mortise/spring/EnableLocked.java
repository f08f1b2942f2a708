package mortise.spring;

import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import org.springframework.context.annotation.Import;

/** On a configuration: {@link Locked} works in the beans of its context, with the context's {@link mortise.Locks}. */
@Target(ElementType.TYPE)
@Retention(RetentionPolicy.RUNTIME)
@Import({LockedMethods.class, LockedMethods.Proxies.class})
public @interface EnableLocked {
    /** Whether beans with interfaces get proxies of their classes, too, as in Spring's own annotations of this kind. */
    boolean proxyTargetClass() default false;
}
