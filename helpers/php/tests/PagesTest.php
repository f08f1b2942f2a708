<?php

declare(strict_types=1);

namespace Mortise\Tests;

use Symfony\Component\Config\FileLocator;
use Symfony\Component\DependencyInjection\ContainerBuilder;
use Symfony\Component\DependencyInjection\Loader\YamlFileLoader;
use Symfony\Component\Lock\LockFactory;

require_once __DIR__ . '/laravel.php';
require_once __DIR__ . '/symfony.php';

/** The code of the README's sections on Laravel and Symfony: their configurations, and programs before and after the change. */
final class PagesTest extends TestCase
{
    /** @return list<string> */
    private static function blocks(string $section, string $language = 'php'): array
    {
        preg_match("/^## $section\\n.*?(?=^## )/ms", file_get_contents(dirname(__DIR__) . '/README.md'), $text);
        preg_match_all("/^```$language\\n(.*?)^```/ms", $text[0], $found);
        return $found[1];
    }

    /** Runs the code as a file with these variables, and returns their values. */
    private static function execute(string $block, array $variables = []): array
    {
        return (static function () use ($block, $variables) {
            extract($variables);
            eval($block);
            return array_diff_key(get_defined_vars(), ['block' => null, 'variables' => null]);
        })();
    }

    /** @dataProvider libraries */
    public function testTheCodeOfTheLaravelSectionRuns(string $client): void
    {
        [$before, $after, $unchanged, $new] = self::blocks('Laravel');
        $lines = fn (string $text) => explode("\n", $text);
        $this->assertCount(1, array_diff($lines($after), $lines($before)), 'one line is to be changed');
        foreach ([[$before, 'string', $unchanged], [$after, 'mort-lock', $unchanged], [$after, 'mort-lock', $new]] as [$config, $type, $program]) {
            $app = laravel(self::$server, $client);
            $app['config']->set('cache', eval("return [$config 'default' => 'redis', 'prefix' => 'app'];"));
            $app['cache']->store()->lock('witness', 60)->get();
            $this->assertSame($type, self::$server->ask('TYPE', 'laravel_database_' . $app['cache']->store()->getStore()->getPrefix() . 'witness'));
            $values = self::execute($program);
            foreach (['paid' => 'paid', 'taken' => true, 'again' => false, 'given' => true, 'done' => 'imported'] as $name => $value) {
                $this->assertSame($value, $values[$name] ?? $value, $name);
            }
            self::$server->admin->flushAll();
        }
    }

    /** @dataProvider libraries */
    public function testTheCodeOfTheSymfonySectionRuns(string $client): void
    {
        [$before, $after, $unchanged, $new, $both] = self::blocks('Symfony');
        foreach ([[$before, 'zset'], [$after, 'mort-lock']] as [$factory, $type]) {
            $made = self::execute($factory, ['redis' => self::$server->client($client)]);
            $witness = $made['factory']->createLock('witness');
            $witness->acquire();
            $this->assertSame($type, self::$server->ask('TYPE', 'witness'));
            $this->assertTrue(self::execute($unchanged, $made)['shared']);
            self::$server->admin->flushAll();
        }
        foreach ([$new, $both] as $block) {
            self::execute($block, ['redis' => self::$server->client($client)]);
        }
    }

    public function testTheServicesOfTheSymfonySectionWork(): void
    {
        foreach (['Config', 'DependencyInjection', 'Yaml'] as $component) {
            require_once "Symfony/Component/$component/autoload.php";
        }
        $file = tempnam(sys_get_temp_dir(), 'mortise') . '.yaml';
        file_put_contents($file, self::blocks('Symfony', 'yaml')[0]);
        $container = new ContainerBuilder();
        $container->register('app.redis')->setSynthetic(true);
        (new YamlFileLoader($container, new FileLocator()))->load($file);
        unlink($file);
        $container->compile();
        $container->set('app.redis', self::$server->phpredis());
        $lock = $container->get(LockFactory::class)->createLock('invoice', 60);
        $lock->acquire();
        $this->assertSame('mort-lock', self::$server->ask('TYPE', 'invoice'));
        $lock->release();
    }
}
