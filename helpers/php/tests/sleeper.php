<?php

/*
 * Prints whether a lock counts as held after the machine has slept, and after somebody has set the wall clock. Functions of the same names
 * replace those by which the library reads the clock and the uptime. With `blind` the uptime cannot be read; with `late` it cannot be read at
 * first, and is that of a container that was started later than the machine.
 */

declare(strict_types=1);

namespace Mortise;

foreach (['Connection', 'Locks', 'Hold'] as $file) {
    require __DIR__ . "/../src/$file.php";
}

final class Machine
{
    public static float $slept = 0.0; // seconds
    public static float $set = 0.0;
    public static bool $isBlind = false;
    public static float $younger = 0.0;
}

function microtime(): float
{
    return \microtime(true) + Machine::$slept + Machine::$set;
}

function file_get_contents(string $file): string|false
{
    return Machine::$isBlind ? false : (string) ((float) \file_get_contents($file) + Machine::$slept - Machine::$younger);
}

[, $port, $sight] = $argv;
Machine::$isBlind = $sight !== 'sees';
Machine::$younger = $sight === 'late' ? 1e5 : 0.0;
$locks = new Locks(function () use ($port) {
    $redis = new \Redis();
    $redis->connect('127.0.0.1', (int) $port);
    return $redis;
});
$holds = [$locks->lock('stock', lease: 3600)->acquire()];
$say = function (string $when) use (&$holds): void {
    echo $when, end($holds)->held() ? ': held, ' : ': over, ';
};
$say('at first');
Machine::$isBlind = $sight === 'blind';
Machine::$set -= 7200;
$say('set back');
Machine::$slept += 1800;
$say('after half');
Machine::$slept += 1700;
$say('at the end');
Machine::$slept += 100;
$say('after all');
$holds[] = $locks->lock('other', lease: 3600)->acquire();
Machine::$set += 7200;
$say('set forward');
