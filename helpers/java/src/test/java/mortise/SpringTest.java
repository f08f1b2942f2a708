package mortise;

import static mortise.TestServer.eventually;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.time.Duration;
import java.util.ConcurrentModificationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import mortise.jedis.JedisClient;
import mortise.spring.EnableLocked;
import mortise.spring.Locked;
import mortise.spring.LockedMethods;
import mortise.spring.MortiseLockRegistry;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.dao.CannotAcquireLockException;
import org.springframework.transaction.PlatformTransactionManager;
import org.springframework.transaction.TransactionDefinition;
import org.springframework.transaction.annotation.EnableTransactionManagement;
import org.springframework.transaction.annotation.Propagation;
import org.springframework.transaction.support.AbstractPlatformTransactionManager;
import org.springframework.transaction.support.DefaultTransactionStatus;

/** Spring: methods with @Locked, and the LockRegistry. */
class SpringTest {
    private static final TestServer server = new TestServer();
    private static CountDownLatch gate;

    @Configuration
    @EnableLocked
    static class Config {
        @Bean(destroyMethod = "close")
        Locks locks() {
            return new Locks(JedisClient.of("127.0.0.1", server.port));
        }

        @Bean
        Stock stock() {
            return new Stock();
        }
    }

    static class Stock {
        @Locked(key = "'stock:' + #id", lease = 10_000, waitFor = 0)
        public long token(long id) {
            assertFalse(server.isFree("stock:" + id));
            return LockedMethods.token();
        }

        @Locked(key = "'stock:' + #id")
        public void stay(long id) throws InterruptedException {
            gate.await();
        }

        @Locked(key = "'stock:' + #id")
        public CompletableFuture<String> promise(long id, CompletableFuture<String> work) {
            assertTrue(LockedMethods.token() > 0);
            return work;
        }

        @Locked(key = "'stock:' + #id")
        public CompletableFuture<String> promiseAround(long id, Runnable begin) {
            begin.run();
            return CompletableFuture.completedFuture("done");
        }

        @Locked(key = "'stock:' + #id")
        public Future<String> plainFuture(long id) {
            throw new AssertionError("it ran");
        }

        @Locked(key = "'stock:' + #id")
        public Object suspending(long id, kotlin.coroutines.Continuation rest) {
            throw new AssertionError("it ran");
        }

        @Locked(key = "'stock:' + #p0", read = true)
        public void fail(long id) {
            throw new IllegalArgumentException("as it wants");
        }
    }

    @Retention(RetentionPolicy.RUNTIME)
    @Locked(key = "'inherited'")
    @interface StockLock {}

    interface Declared {
        @Locked(key = "'inherited'")
        void run(Runnable body);
    }

    /** The annotation is on the interface's method. */
    static class OfInterface implements Declared {
        @Override
        public void run(Runnable body) {
            body.run();
        }
    }

    /** The annotation is on the method that this one overrides. */
    static class Overriding extends Composed {
        @Override
        public void run(Runnable body) {
            body.run();
        }
    }

    /** The annotation is on another annotation. */
    static class Composed {
        @StockLock
        public void run(Runnable body) {
            body.run();
        }
    }

    @Configuration
    @EnableLocked(proxyTargetClass = true)
    static class ClassProxies {
        @Bean
        Locks locks() {
            return new Locks(JedisClient.of("127.0.0.1", server.port));
        }

        @Bean
        OfInterface ofInterface() {
            return new OfInterface();
        }

        @Bean
        Composed composed() {
            return new Composed();
        }

        @Bean
        Overriding overriding() {
            return new Overriding();
        }
    }

    @Test
    void a_method_is_locked_by_an_annotation_of_its_interface_of_the_method_that_it_overrides_or_of_an_annotation() {
        try (var context = new AnnotationConfigApplicationContext(ClassProxies.class)) {
            Runnable body = () -> assertFalse(server.isFree("inherited"));
            context.getBean(OfInterface.class).run(body);
            context.getBean("composed", Composed.class).run(body);
            context.getBean(Overriding.class).run(body);
        }
    }

    /** Two clients' locks, of which one is the bean "locks". */
    @Configuration
    @EnableLocked
    static class TwoLocks {
        @Bean
        Locks locks() {
            return new Locks(JedisClient.of("127.0.0.1", server.port));
        }

        @Bean
        Locks others() {
            return new Locks(JedisClient.of("127.0.0.1", server.port));
        }

        @Bean
        Stock stock() {
            return new Stock();
        }
    }

    @Test
    void of_several_beans_the_one_named_locks_is_used() {
        try (var context = new AnnotationConfigApplicationContext(TwoLocks.class)) {
            assertTrue(context.getBean(Stock.class).token(27) > 0);
        }
    }

    /** A transaction manager that counts. */
    @Configuration
    @EnableLocked
    @EnableTransactionManagement
    static class Transactional {
        final AtomicInteger begun = new AtomicInteger();

        @Bean(destroyMethod = "close")
        Locks locks() {
            return new Locks(JedisClient.of("127.0.0.1", server.port));
        }

        @Bean
        PlatformTransactionManager transactions() {
            return new AbstractPlatformTransactionManager() {
                @Override
                protected Object doGetTransaction() {
                    return new Object();
                }

                @Override
                protected void doBegin(Object transaction, TransactionDefinition definition) {
                    begun.incrementAndGet();
                }

                @Override
                protected void doCommit(DefaultTransactionStatus status) {}

                @Override
                protected void doRollback(DefaultTransactionStatus status) {}
            };
        }

        @Bean
        Orders orders() {
            return new Orders();
        }
    }

    static class Orders {
        @org.springframework.transaction.annotation.Transactional(propagation = Propagation.REQUIRES_NEW)
        public void place() {}

        @Locked(key = "'orders'")
        @org.springframework.transaction.annotation.Transactional(propagation = Propagation.REQUIRES_NEW)
        public void placeLocked() {
            assertFalse(server.isFree("orders"));
        }
    }

    @Test
    void a_transaction_begins_once_where_methods_are_locked_too() {
        try (var context = new AnnotationConfigApplicationContext(Transactional.class)) {
            var begun = context.getBean(Transactional.class).begun;
            context.getBean(Orders.class).place();
            assertEquals(1, begun.get());
            context.getBean(Orders.class).placeLocked();
            assertEquals(2, begun.get());
        }
    }

    @Test
    void a_method_that_returns_a_future_holds_its_lock_until_that_ends() throws Exception {
        var work = new CompletableFuture<String>();
        var result = stock.promise(21, work);
        assertFalse(server.isFree("stock:21"));
        assertThrows(LockException.Busy.class, () -> stock.token(21));
        work.complete("done");
        assertEquals("done", result.get());
        assertTrue(server.isFree("stock:21"));

        var failing = new CompletableFuture<String>();
        result = stock.promise(21, failing);
        failing.completeExceptionally(new IllegalArgumentException("as it wants"));
        assertEquals("as it wants", assertThrows(ExecutionException.class, result::get).getCause().getMessage());
        assertTrue(server.isFree("stock:21"));

        var lost = new CompletableFuture<String>();
        result = stock.promise(21, lost);
        server.run("DEL", "stock:21");
        lost.complete("done");
        assertTrue(assertThrows(ExecutionException.class, result::get).getCause() instanceof LockException.Lost);
    }

    @Test
    void a_method_whose_future_the_caller_cancels_unlocks_when_its_work_ends() throws Exception {
        var work = new CompletableFuture<String>();
        stock.promise(26, work).cancel(true);
        assertFalse(server.isFree("stock:26"));
        work.complete("done");
        eventually("it is free", () -> server.isFree("stock:26"));
    }

    @Test
    void a_method_whose_end_nobody_can_see_is_refused() {
        assertThrows(IllegalStateException.class, () -> stock.plainFuture(22));
        assertThrows(IllegalStateException.class, () -> stock.suspending(22, null));
        assertTrue(server.isFree("stock:22"));
        var lock = context.getBean(Locks.class).lock("stock:23");
        lock.lock();
        assertThrows(IllegalStateException.class, () -> stock.promise(23, new CompletableFuture<>()), "it would wait for itself");
        lock.unlock();
    }

    @Test
    void a_method_that_returns_a_future_refuses_calls_that_would_wait_for_it() throws Exception {
        stock.promiseAround(24, () -> {
            assertThrows(IllegalStateException.class, () -> stock.token(24));
            assertThrows(IllegalStateException.class, () -> stock.promise(24, new CompletableFuture<>()));
            assertTrue(stock.token(25) > 0);
            assertTrue(LockedMethods.token() > 0);
        }).get();
        assertTrue(server.isFree("stock:24"));
        assertTrue(stock.token(24) > 0);
    }

    private final AnnotationConfigApplicationContext context = new AnnotationConfigApplicationContext(Config.class);
    private final Stock stock = context.getBean(Stock.class);

    @BeforeEach
    void close() {
        gate = new CountDownLatch(1);
    }

    @AfterEach
    void stop() {
        context.close();
    }

    @AfterAll
    static void stopServer() {
        server.close();
    }

    @Test
    void a_locked_method_runs_under_its_lock_with_the_token_at_hand() {
        long first = stock.token(17);
        assertTrue(server.isFree("stock:17"));
        assertTrue(stock.token(17) > first);
        assertThrows(IllegalMonitorStateException.class, LockedMethods::token);
    }

    @Test
    void a_caller_that_does_not_get_the_lock_of_a_method_gets_an_exception() throws Exception {
        var inside = EachClient.start(() -> {
            stock.stay(18);
            return null;
        });
        eventually("it is inside", () -> !server.isFree("stock:18"));
        assertThrows(LockException.Busy.class, () -> stock.token(18));
        gate.countDown();
        inside.get();
    }

    @Test
    void a_locked_method_whose_lock_was_lost_throws() {
        var inside = EachClient.start(() -> {
            stock.stay(20);
            return null;
        });
        eventually("it is inside", () -> !server.isFree("stock:20"));
        server.run("DEL", "stock:20");
        eventually("the next one is", () -> stock.token(20) > 0);
        gate.countDown();
        var e = assertThrows(ExecutionException.class, inside::get);
        assertTrue(e.getCause() instanceof LockException.Lost, e.toString());
    }

    @Test
    void a_method_that_fails_unlocks_and_its_exception_is_passed_on() {
        var e = assertThrows(IllegalArgumentException.class, () -> stock.fail(19));
        assertEquals("as it wants", e.getMessage());
        assertTrue(server.isFree("stock:19"));
    }

    @Test
    void the_lock_registry_of_spring_adds_the_prefix_to_its_locks() throws Exception {
        var registry = new MortiseLockRegistry(context.getBean(Locks.class), "orders");
        var lock = registry.obtain("7");
        lock.lock();
        assertFalse(server.isFree("orders:7"));
        assertFalse(EachClient.start(() -> registry.obtain("7").tryLock()).get());
        lock.unlock();
        assertTrue(server.isFree("orders:7"));
    }

    @Test
    void the_lock_registry_gives_its_locks_its_own_lease() {
        var locks = context.getBean(Locks.class);
        var lock = new MortiseLockRegistry(locks, "orders", Duration.ofMinutes(7)).obtain("8");
        lock.lock();
        assertTrue(locks.lock("orders:8").remainingLease().compareTo(Duration.ofMinutes(6)) > 0);
        lock.unlock();
    }

    @Test
    void the_lock_registry_has_one_lock_for_each_key() {
        var registry = new MortiseLockRegistry(context.getBean(Locks.class), "orders");
        assertSame(registry.obtain("7"), registry.obtain("7"));
        assertNotSame(registry.obtain("7"), registry.obtain("8"));
    }

    @Test
    void the_lock_registry_throws_the_exceptions_that_its_users_catch() {
        var registry = new MortiseLockRegistry(context.getBean(Locks.class), "orders");
        assertThrows(IllegalStateException.class, registry.obtain("9")::unlock);
        registry.obtain("9").lock();
        server.run("SET", "orders:9", "x");
        assertThrows(ConcurrentModificationException.class, registry.obtain("9")::unlock);
        var lock = registry.obtain("9");
        assertThrows(CannotAcquireLockException.class, lock::lock);
        assertThrows(CannotAcquireLockException.class, lock::lockInterruptibly);
        assertThrows(CannotAcquireLockException.class, lock::tryLock);
        assertThrows(CannotAcquireLockException.class, () -> lock.tryLock(1, TimeUnit.SECONDS));
        assertThrows(UnsupportedOperationException.class, lock::newCondition);
    }
}
