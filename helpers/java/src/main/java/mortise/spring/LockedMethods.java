package mortise.spring;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.TimeUnit;
import mortise.LockException;
import mortise.Locks;
import mortise.ThreadLock;
import org.aopalliance.intercept.MethodInterceptor;
import org.aopalliance.intercept.MethodInvocation;
import org.springframework.aop.Advisor;
import org.springframework.aop.Pointcut;
import org.springframework.aop.framework.autoproxy.InfrastructureAdvisorAutoProxyCreator;
import org.springframework.aop.support.AopUtils;
import org.springframework.aop.support.ComposablePointcut;
import org.springframework.aop.support.DefaultPointcutAdvisor;
import org.springframework.aop.support.annotation.AnnotationMatchingPointcut;
import org.springframework.beans.factory.BeanFactory;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.beans.factory.config.BeanDefinition;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Role;
import org.springframework.context.expression.BeanFactoryResolver;
import org.springframework.context.expression.MethodBasedEvaluationContext;
import org.springframework.core.DefaultParameterNameDiscoverer;
import org.springframework.core.annotation.AnnotatedElementUtils;
import org.springframework.expression.spel.standard.SpelExpressionParser;

/** Runs methods that are {@link Locked}, and knows their tokens. */
@Configuration(proxyBeanMethods = false)
@Role(BeanDefinition.ROLE_INFRASTRUCTURE)
public class LockedMethods {
    private static final ThreadLocal<Deque<ThreadLock>> held = ThreadLocal.withInitial(ArrayDeque::new);

    /**
     * The fencing token of the innermost {@link Locked} method that this thread is in, if its lock is held at this moment.
     *
     * @throws LockException.Lost if it was lost
     */
    public static long token() {
        ThreadLock lock = held.get().peek();
        if (lock == null) {
            throw new IllegalMonitorStateException("this thread is in no method with @Locked");
        }
        return lock.token();
    }

    @Bean
    @Role(BeanDefinition.ROLE_INFRASTRUCTURE)
    static Advisor lockedAdvisor(ObjectProvider<Locks> locks, BeanFactory beans) {
        var pointcut = new ComposablePointcut(AnnotationMatchingPointcut.forMethodAnnotation(Locked.class))
            .union((Pointcut) new AnnotationMatchingPointcut(Locked.class, true));
        var advisor = new DefaultPointcutAdvisor(pointcut, new Interceptor(locks, beans));
        advisor.setOrder(0); // around transactions: what a method writes is committed before its lock is free
        return advisor;
    }

    @Bean
    @Role(BeanDefinition.ROLE_INFRASTRUCTURE)
    static InfrastructureAdvisorAutoProxyCreator lockedProxies() {
        var creator = new InfrastructureAdvisorAutoProxyCreator();
        creator.setProxyTargetClass(true);
        return creator;
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
            if (locked.waitFor() < 0) {
                lock.lockInterruptibly();
            } else if (!lock.tryLock(locked.waitFor(), TimeUnit.MILLISECONDS)) {
                throw new LockException.Busy(key);
            }
            return run(call, lock);
        }

        /** Reports a lock that was lost meanwhile or cannot be released, unless the method failed itself. */
        private static Object run(MethodInvocation call, ThreadLock lock) throws Throwable {
            Throwable failure = null;
            held.get().push(lock);
            try {
                return call.proceed();
            } catch (Throwable e) {
                failure = e;
                throw e;
            } finally {
                held.get().pop();
                try {
                    lock.unlock();
                } catch (LockException | LockException.Lost e) {
                    if (failure == null) {
                        throw e;
                    }
                    failure.addSuppressed(e);
                }
            }
        }
    }
}
