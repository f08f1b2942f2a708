"""Django's cache on Redis with locks beside what it caches: `cache.lock(key)`, as django-redis has it."""
from django.core.cache.backends.redis import RedisCache as DjangosRedisCache

from . import Lock

__all__ = ["RedisCache"]


class RedisCache(DjangosRedisCache):
    """Django's own backend, and `lock`. For the setting `CACHES`."""

    def lock(self, key, version=None, timeout=None, sleep=0.1, blocking_timeout=None, client=None, thread_local=True, **options):
        """A `mortise_lock.Lock` under the cache's name for this key. It shares the cache's connection pool.

        The arguments are django-redis's, in its order. `client` is another redis-py client to lock by; `options` are those of `Lock`.
        """
        name = self.make_and_validate_key(f"lock:{key}", version=version)
        client = client or self._cache.get_client(name, write=True)
        return Lock(client, name, timeout, sleep, blocking_timeout=blocking_timeout, thread_local=thread_local, **options)
