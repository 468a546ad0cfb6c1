<?php
// phpredis: types, pipelines, transactions, WATCH, scripts, iterators, streams, messages, serializers.
//
//     php phpredis_commands.php PORT
declare(strict_types=1);

function check(string $what, $found, $wanted): void
{
    if ($found !== $wanted) {
        throw new Exception("$what: " . json_encode($found) . ' instead of ' . json_encode($wanted));
    }
}

function connect(): Redis
{
    global $argv;
    $redis = new Redis();
    $redis->connect('127.0.0.1', (int) $argv[1], 10, null, 0, 30);
    return $redis;
}

$redis = connect();
check('PING', $redis->ping('hello'), 'hello');
check('SET', [$redis->set('s', "a\0b"), $redis->set('s', 'x', ['nx', 'ex' => 10]), $redis->get('s')],
    [true, false, "a\0b"]);
check('SETEX', [$redis->setex('t', 100, 'x'), $redis->ttl('t') > 90, $redis->persist('t'), $redis->ttl('t')],
    [true, true, true, -1]);
check('INCR', [$redis->incr('n'), $redis->incrBy('n', 41), $redis->incrByFloat('f', 1.5)], [1, 42, 1.5]);
check('MSET', [$redis->mSet(['a' => '1', 'b' => '2']), $redis->mGet(['a', 'none', 'b'])], [true, ['1', false, '2']]);
check('HSET', [$redis->hMSet('h', ['a' => 1, 'b' => 2]), $redis->hGetAll('h'), $redis->hMGet('h', ['b', 'c'])],
    [true, ['a' => '1', 'b' => '2'], ['b' => '2', 'c' => false]]);
check('lists', [$redis->rPush('l', 'a', 'b', 'c'), $redis->lRange('l', 0, -1), $redis->lPop('l'), $redis->lLen('l')],
    [3, ['a', 'b', 'c'], 'a', 2]);
check('BLPOP', $redis->blPop(['empty', 'l'], 5), ['l', 'b']);
check('sets', [$redis->sAdd('x', 'a', 'b'), $redis->sAdd('y', 'b', 'c'), $redis->sInter('x', 'y')], [2, 2, ['b']]);
check('sorted sets', [$redis->zAdd('z', 1, 'a', 2.5, 'b'), $redis->zRange('z', 0, -1, true), $redis->zRank('z', 'b')],
    [2, ['a' => 1.0, 'b' => 2.5], 1]);
check('geo', [$redis->geoadd('g', 13.361389, 38.115556, 'Palermo', 15.087269, 37.502669, 'Catania'),
    round($redis->geodist('g', 'Palermo', 'Catania', 'km'))], [2, 166.0]);
check('a pipeline', $redis->pipeline()->set('p', '1')->incr('p')->get('p')->exec(), [true, 2, '2']);
check('a transaction', $redis->multi()->incr('p')->hGet('h', 'a')->exec(), [3, '1']);

$other = connect();
$redis->watch('p');
$other->set('p', 'changed');
check('a transaction that has lost', $redis->multi()->set('p', 'mine')->exec(), false);
check('EVAL', $redis->eval("return {KEYS[1], ARGV[1], redis.call('GET', KEYS[1])}", ['p', 'x'], 1),
    ['p', 'x', 'changed']);
$sha = $redis->script('load', 'return ARGV[1] + 1');
check('EVALSHA', $redis->evalSha($sha, ['41'], 0), 42);
check('an error', [$redis->hGet('s', 'a'), str_starts_with($redis->getLastError(), 'WRONGTYPE')], [false, true]);

for ($n = 0; $n < 1000; $n++) {
    $redis->hSet('big', "f$n", "$n");
}
$redis->setOption(Redis::OPT_SCAN, Redis::SCAN_RETRY);
$found = [];
$cursor = null;
while (($part = $redis->hScan('big', $cursor, '*', 100)) !== false) {
    $found += $part;
}
check('HSCAN', count($found), 1000);
$keys = [];
$cursor = null;
while (($part = $redis->scan($cursor, '[a-z]', 10)) !== false) {
    array_push($keys, ...$part);
}
sort($keys);
check('SCAN', array_values(array_unique($keys)), ['a', 'b', 'f', 'g', 'h', 'l', 'n', 'p', 's', 't', 'x', 'y', 'z']);

$id = $redis->xAdd('stream', '*', ['a' => '1']);
$redis->xGroup('CREATE', 'stream', 'group', '0');
check('streams', $redis->xReadGroup('group', 'me', ['stream' => '>'], 10), ['stream' => [$id => ['a' => '1']]]);
check('XACK', [$redis->xPending('stream', 'group')[0], $redis->xAck('stream', 'group', [$id])], [1, 1]);

foreach ([Redis::SERIALIZER_PHP, Redis::SERIALIZER_IGBINARY, Redis::SERIALIZER_JSON] as $serializer) {
    $redis->setOption(Redis::OPT_SERIALIZER, $serializer);
    $value = ['a' => [1, 2.5, null, true], 'b' => 'Grüße'];
    check("serializer $serializer", [$redis->set('v', $value), $redis->get('v')], [true, $value]);
}
$redis->setOption(Redis::OPT_SERIALIZER, Redis::SERIALIZER_NONE);
$redis->setOption(Redis::OPT_PREFIX, 'app:');
check('a prefix', [$redis->set('k', 'v'), $other->get('app:k'), $redis->keys('*')], [true, 'v', ['app:k']]);
$redis->setOption(Redis::OPT_PREFIX, '');

// subscribe() does not return by itself: the callback ends the connection.
$redis->setOption(Redis::OPT_READ_TIMEOUT, 30);
$child = proc_open([PHP_BINARY, __DIR__ . '/phpredis_publish.php', $argv[1]], [], $pipes);
$got = [];
try {
    $redis->subscribe(['news'], function (Redis $redis, string $channel, string $message) use (&$got): void {
        $got[] = $message;
        if (count($got) === 100) {
            $redis->close();
        }
    });
} catch (RedisException $ended) {
    check('the end of messages', count($got), 100);
}
check('messages', $got, array_map('strval', range(0, 99)));
check('the publisher', proc_close($child), 0);
