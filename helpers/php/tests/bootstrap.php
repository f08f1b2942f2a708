<?php

/* The library, and the packages of the distribution that its adapters are for. */

declare(strict_types=1);

foreach (['Connection', 'Locks', 'Hold', 'MultiLock'] as $file) {
    require_once __DIR__ . "/../src/$file.php";
}
require_once 'Predis/autoload.php';
require_once __DIR__ . '/servers.php';
require_once __DIR__ . '/TestCase.php';
