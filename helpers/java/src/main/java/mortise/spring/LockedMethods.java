package mortise.spring;

import java.lang.reflect.Method;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;
import mortise.Held;
import mortise.LockException;
import mortise.Locks;
import mortise.ThreadLock;
import org.aopalliance.intercept.MethodInterceptor;
import org.aopalliance.intercept.MethodInvocation;
import org.springframework.aop.Advisor;
import org.springframework.aop.Pointcut;
import org.springframework.aop.config.AopConfigUtils;
import org.springframework.aop.support.AopUtils;
import org.springframework.aop.support.ComposablePointcut;
import org.springframework.aop.support.DefaultPointcutAdvisor;
import org.springframework.aop.support.annotation.AnnotationMatchingPointcut;
import org.springframework.beans.factory.BeanFactory;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.beans.factory.config.BeanDefinition;
import org.springframework.beans.factory.support.BeanDefinitionRegistry;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.ImportBeanDefinitionRegistrar;
import org.springframework.context.annotation.Role;
import org.springframework.context.expression.BeanFactoryResolver;
import org.springframework.context.expression.MethodBasedEvaluationContext;
import org.springframework.core.DefaultParameterNameDiscoverer;
import org.springframework.core.ReactiveAdapterRegistry;
import org.springframework.core.annotation.AnnotatedElementUtils;
import org.springframework.core.type.AnnotationMetadata;
import org.springframework.expression.spel.standard.SpelExpressionParser;

/** Runs methods that are {@link Locked}, and knows their tokens. */
@Configuration(proxyBeanMethods = false)
@Role(BeanDefinition.ROLE_INFRASTRUCTURE)
public class LockedMethods {
    private static final ThreadLocal<Deque<Inside>> inside = ThreadLocal.withInitial(ArrayDeque::new);

    /** A method that this thread is in. A lock that a future holds belongs to no thread. */
    private record Inside(String key, boolean isAsync, LongSupplier token) {}

    /**
     * The fencing token of the innermost {@link Locked} method that this thread is in, if its lock is held at this moment.
     *
     * @throws LockException.Lost if it was lost
     */
    public static long token() {
        Inside innermost = inside.get().peek();
        if (innermost == null) {
            throw new IllegalMonitorStateException("this thread is in no method with @Locked");
        }
        return innermost.token.getAsLong();
    }

    /** Registers the proxy creator of the context, which applies each advisor once. A second one would apply all of them twice. */
    static final class Proxies implements ImportBeanDefinitionRegistrar {
        @Override
        public void registerBeanDefinitions(AnnotationMetadata importing, BeanDefinitionRegistry registry) {
            AopConfigUtils.registerAutoProxyCreatorIfNecessary(registry);
            if (importing.getAnnotations().get(EnableLocked.class).getBoolean("proxyTargetClass")) {
                AopConfigUtils.forceAutoProxyCreatorToUseClassProxying(registry);
            }
        }
    }

    /** The name of the parameter {@code locks} counts: of several beans without a primary one, the one of that name is used. */
    @Bean
    @Role(BeanDefinition.ROLE_INFRASTRUCTURE)
    static Advisor lockedAdvisor(ObjectProvider<Locks> locks, BeanFactory beans) {
        var pointcut = new ComposablePointcut((Pointcut) new AnnotationMatchingPointcut(null, Locked.class, true))
            .union((Pointcut) new AnnotationMatchingPointcut(Locked.class, true));
        var advisor = new DefaultPointcutAdvisor(pointcut, new Interceptor(locks, beans));
        advisor.setOrder(0); // around transactions: what a method writes is committed before its lock is free
        return advisor;
    }

    private record Interceptor(ObjectProvider<Locks> locks, BeanFactory beans) implements MethodInterceptor {
        private static final SpelExpressionParser parser = new SpelExpressionParser();
        private static final DefaultParameterNameDiscoverer names = new DefaultParameterNameDiscoverer();

        @Override
        public Object invoke(MethodInvocation call) throws Throwable {
            Class<?> type = call.getThis().getClass();
            var method = AopUtils.getMostSpecificMethod(call.getMethod(), type);
            Locked locked = AnnotatedElementUtils.findMergedAnnotation(method, Locked.class);
            if (locked == null) {
                locked = AnnotatedElementUtils.findMergedAnnotation(type, Locked.class);
            }
            var context = new MethodBasedEvaluationContext(call.getThis(), method, call.getArguments(), names);
            context.setBeanResolver(new BeanFactoryResolver(beans));
            String key = parser.parseExpression(locked.key()).getValue(context, String.class);
            if (key == null) {
                throw new IllegalArgumentException("@Locked: the key " + locked.key() + " is null");
            }
            var both = locks.getObject().readWriteLock(key, Duration.ofMillis(locked.lease()));
            ThreadLock lock = locked.read() ? both.readLock() : both.writeLock();
            long wait = locked.waitFor() < 0 ? Long.MAX_VALUE : locked.waitFor();
            Class<?> returned = method.getReturnType();
            boolean isAsync = returned == CompletableFuture.class || returned == CompletionStage.class;
            boolean isOfThread = both.writeLock().getHoldCount() + both.readLock().getHoldCount() > 0;
            if (isAsync && isOfThread || inside.get().stream().anyMatch(outer -> outer.isAsync && outer.key.equals(key))) {
                throw new IllegalStateException("@Locked: " + method + " would wait for the lock " + key + " that its own thread holds");
            }
            if (isAsync) {
                var request = locks.getObject().take(key).lease(Duration.ofMillis(locked.lease())).wait(Duration.ofMillis(wait));
                Held held = (locked.read() ? request.read() : request).acquire();
                return run(call, new Inside(key, true, held::check), held::unlock);
            } else if (Future.class.isAssignableFrom(returned) || ReactiveAdapterRegistry.getSharedInstance().getAdapter(returned) != null
                || isSuspending(method)) {
                throw new IllegalStateException("@Locked: " + method + " returns before its work is done; let it return a CompletableFuture");
            }
            if (!lock.tryLock(wait, TimeUnit.MILLISECONDS)) {
                throw new LockException.Busy(key);
            }
            return run(call, new Inside(key, false, lock::token), lock::unlock);
        }

        /** Whether it is a suspending function of Kotlin: its last parameter is a continuation. */
        private static boolean isSuspending(Method method) {
            Class<?>[] parameters = method.getParameterTypes();
            return parameters.length > 0 && parameters[parameters.length - 1].getName().equals("kotlin.coroutines.Continuation");
        }

        /** Holds the lock until the method has returned, or the future that it returns has completed, on whatever thread that is. */
        private static Object run(MethodInvocation call, Inside here, Runnable unlock) throws Throwable {
            Object result;
            inside.get().push(here);
            try {
                result = call.proceed();
            } catch (Throwable e) {
                unlock(unlock, e);
                throw e;
            } finally {
                inside.get().pop();
            }
            if (here.isAsync && result != null) {
                var unlocked = ((CompletionStage<?>) result).whenCompleteAsync((value, failure) -> unlock(unlock, failure));
                return unlocked.thenApply(value -> value); // a caller may cancel this one: then the work goes on, and its lock ends with it
            }
            unlock.run();
            return result;
        }

        /** Reports a lock that was lost meanwhile or cannot be released, beside the method's own failure if it has failed. */
        private static void unlock(Runnable unlock, Throwable failure) {
            try {
                unlock.run();
            } catch (LockException e) {
                if (failure == null) {
                    throw e;
                }
                failure.addSuppressed(e);
            }
        }
    }
}
