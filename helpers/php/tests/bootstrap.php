<?php

/* The library, and the distribution's packages for which it has adapters. */

declare(strict_types=1);

foreach (['Connection', 'Locks', 'Hold'] as $file) {
    require_once __DIR__ . "/../src/$file.php";
}
require_once getenv('PREDIS') ?: 'Predis/autoload.php';
require_once __DIR__ . '/servers.php';
require_once __DIR__ . '/TestCase.php';
