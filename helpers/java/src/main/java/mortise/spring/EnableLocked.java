package mortise.spring;

import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import org.springframework.context.annotation.Import;

/** On a configuration: {@link Locked} works in the beans of its context, with the context's {@link mortise.Locks}. */
@Target(ElementType.TYPE)
@Retention(RetentionPolicy.RUNTIME)
@Import(LockedMethods.class)
public @interface EnableLocked {}
