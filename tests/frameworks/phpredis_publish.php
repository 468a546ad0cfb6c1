<?php
// Publishes numbers for phpredis_commands.php as soon as it listens.
$redis = new Redis();
$redis->connect('127.0.0.1', (int) $argv[1]);
$deadline = microtime(true) + 30;
while ((int) $redis->pubsub('numsub', ['news'])['news'] !== 1) {
    if (microtime(true) > $deadline) {
        fwrite(STDERR, "nobody listens after 30 s\n");
        exit(1);
    }
    usleep(5000);
}
for ($n = 0; $n < 100; $n++) {
    $redis->publish('news', (string) $n);
}
