<?php

/* A process that waits for the lock "stock", and ends by exit() in the handler of SIGUSR1. */

declare(strict_types=1);

foreach (['Connection', 'Locks', 'Hold'] as $file) {
    require __DIR__ . "/../src/$file.php";
}
require 'Predis/autoload.php';

[, $library, $port] = $argv;
pcntl_async_signals(true);
pcntl_signal(SIGUSR1, fn () => exit(7));
$locks = new Mortise\Locks(function () use ($library, $port) {
    if ($library === 'predis') {
        return new Predis\Client(['port' => $port]);
    }
    $redis = new Redis();
    $redis->connect('127.0.0.1', (int) $port);
    return $redis;
});
$locks->lock('stock')->acquire(60);
