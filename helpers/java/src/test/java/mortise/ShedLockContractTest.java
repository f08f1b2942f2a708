package mortise;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.concurrent.ExecutionException;
import mortise.jedis.JedisClient;
import mortise.shedlock.MortiseLockProvider;
import net.javacrumbs.shedlock.core.ExtensibleLockProvider;
import net.javacrumbs.shedlock.test.support.AbstractExtensibleLockProviderIntegrationTest;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** ShedLock's own tests of every provider that can extend a lock. */
@Timeout(60)
class ShedLockContractTest extends AbstractExtensibleLockProviderIntegrationTest {
    private static final TestServer server = new TestServer();
    private static final MortiseLockProvider provider = new MortiseLockProvider(JedisClient.of("127.0.0.1", server.port));

    @AfterAll
    static void close() {
        provider.close();
        server.close();
    }

    @BeforeEach
    void empty() {
        server.run("FLUSHALL");
    }

    /** Disabled there, and passed here. */
    @Override
    @Test
    public void fuzzTestShouldPass() throws ExecutionException, InterruptedException {
        super.fuzzTestShouldPass();
    }

    @Override
    protected ExtensibleLockProvider getLockProvider() {
        return provider;
    }

    @Override
    protected void assertUnlocked(String name) {
        assertTrue(server.isFree("shedlock:" + name));
    }

    @Override
    protected void assertLocked(String name) {
        assertFalse(server.isFree("shedlock:" + name));
    }
}
