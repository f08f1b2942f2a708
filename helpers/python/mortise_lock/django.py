"""Django's cache on Redis with locks beside what it caches: `cache.lock(key)`, as django-redis has it."""
from django.core.cache.backends.redis import RedisCache as DjangosRedisCache

from . import Lock

__all__ = ["RedisCache"]


class RedisCache(DjangosRedisCache):
    """Django's own backend, and `lock`. For the setting `CACHES`."""

    def lock(self, key, timeout=None, version=None, **options):
        """A `mortise_lock.Lock` under the cache's name for this key, with its options. It shares the cache's connection pool."""
        name = self.make_and_validate_key(f"lock:{key}", version=version)
        return Lock(self._cache.get_client(name, write=True), name, timeout, **options)
