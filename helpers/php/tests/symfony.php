<?php

/* Symfony's Lock component with our store, and the component's own tests of stores (fetched by `./interop prepare`). */

declare(strict_types=1);

require_once 'Symfony/Component/Lock/autoload.php';
require_once __DIR__ . '/../src/Symfony/MortiseStore.php';
foreach (['AbstractStoreTestCase', 'BlockingStoreTestTrait', 'ExpiringStoreTestTrait', 'SharedLockStoreTestTrait', 'UnserializableTestTrait'] as $file) {
    require_once Mortise\Tests\contracts("symfony/src/Symfony/Component/Lock/Tests/Store/$file.php");
}
