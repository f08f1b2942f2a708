<?php

declare(strict_types=1);

namespace Mortise\Tests;

/** The README's commands, in a project with only the published files, and without a registry. */
final class ReadmeTest extends TestCase
{
    private const README = __DIR__ . '/../README.md';
    private static string $project;

    public static function setUpBeforeClass(): void
    {
        parent::setUpBeforeClass();
        self::$project = sys_get_temp_dir() . '/mortise-reader-' . bin2hex(random_bytes(6));
        mkdir(self::$project . '/home', recursive: true);
        file_put_contents(self::$project . '/home/config.json', '{"repositories": {"packagist": false}}');
        file_put_contents(self::$project . '/composer.json', '{}');
        foreach (self::blocks('sh') as $commands) {
            self::shell(['bash', '-euc', str_replace('…/mortise', dirname(__DIR__, 3), $commands)]);
        }
    }

    public static function tearDownAfterClass(): void
    {
        exec('rm -rf ' . escapeshellarg(self::$project));
        parent::tearDownAfterClass();
    }

    /** The code outside the sections on frameworks, which PagesTest runs. @return list<string> */
    private static function blocks(string $language): array
    {
        $text = preg_replace('/^## (Laravel|Symfony)\n.*?(?=^## )/ms', '', file_get_contents(self::README));
        preg_match_all("/^```$language\\n(.*?)^```/ms", $text, $found);
        return $found[1];
    }

    private static function shell(array $command): string
    {
        $environment = ['COMPOSER_HOME' => self::$project . '/home', 'COMPOSER_ALLOW_SUPERUSER' => '1', 'COMPOSER_NO_INTERACTION' => '1'];
        $process = proc_open($command, [['file', '/dev/null', 'r'], ['pipe', 'w'], ['redirect', 1]], $pipes, self::$project, $environment + getenv());
        $output = stream_get_contents($pipes[1]);
        self::assertSame(0, proc_close($process), $output);
        return $output;
    }

    public static function examples(): array
    {
        return array_map(fn ($block) => [$block], self::blocks('php'));
    }

    /** @dataProvider examples */
    public function testTheCodeOfTheReadmeRuns(string $block): void
    {
        $predis = str_contains($block, 'Predis\Client([') ? "require 'Predis/autoload.php';\n" : '';
        $block = str_replace(['6379', "require 'vendor/autoload.php';\n"], [(string) self::$server->port, "$0$predis"], $block);
        $block = str_replace('$0', "require 'vendor/autoload.php';\n", $block);
        file_put_contents(self::$project . '/stock.php', $block);
        // Debian's PHP skips assert().
        $output = self::shell([PHP_BINARY, '-d', 'zend.assertions=-1', '-d', 'error_reporting=-1', 'stock.php']);
        $this->assertDoesNotMatchRegularExpression('/Warning|Notice|Deprecated|others hold|lost/', $output);
        $this->assertSame(self::output($block) ?? $output, $output);
        $this->assertSame(str_contains($block, 'minutely') ? 1 : 0, self::$server->admin->dbSize());
    }

    /** The output of a block, if it is always the same. */
    private static function output(string $block): ?string
    {
        preg_match_all('{var_dump\(.*\); +// (NULL|bool\(true\))}', $block, $values);
        return match (true) {
            $values[1] !== [] => implode("\n", $values[1]) . "\n",
            str_contains($block, 'minutely') => "the first machine runs it\n",
            str_contains($block, 'thrice') => "once: runs it\ntwice: it has a runner\nthrice: it has a runner\n",
            default => null,
        };
    }

    public function testWithoutTheMachinesUptimeLocksWorkByAnotherClock(): void
    {
        file_put_contents(self::$project . '/stock.php', str_replace('6379', (string) self::$server->port, self::blocks('php')[0]));
        $places = implode(':', [self::$project, dirname(__DIR__)]);
        $this->assertMatchesRegularExpression('/^inside, with the fencing token \d+$/', self::shell([PHP_BINARY, '-d', "open_basedir=$places", 'stock.php']));
    }

    public function testTheLicencesAreThoseOfTheRepository(): void
    {
        foreach (['LICENSE-MIT', 'LICENSE-APACHE'] as $file) {
            $this->assertFileEquals(dirname(__DIR__, 3) . "/$file", self::$project . "/vendor/mortise/lock/$file");
        }
    }
}
