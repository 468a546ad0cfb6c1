<?php
// A page for phpredis_sessions.py: what a request does is in `do`. It keeps a session in the server.
$redis = new Redis();
$redis->connect('127.0.0.1', (int) getenv('KEDIS_PORT'));
if ($_GET['do'] === 'nothing') {
    exit('nothing');
}
session_start();
$_SESSION['requests'] = ($_SESSION['requests'] ?? 0) + 1;
switch ($_GET['do']) {
    case 'count':
        break;
    case 'hold':
        // Keeps the session's lock until somebody says that it is enough.
        $redis->rPush('holding', session_id());
        $redis->blPop(['enough'], 30);
        break;
    case 'remember':
        $_SESSION['what'] = ['text' => "Grüße \0 👋", 'list' => [1, 2.5, null, true]];
        break;
    case 'recall':
        header('Content-Type: application/json');
        exit(json_encode(['what' => $_SESSION['what'] ?? null, 'id' => session_id()]));
    case 'renew':
        session_regenerate_id(true);
        break;
    case 'end':
        session_destroy();
        exit('ended');
}
$redis->rPush('trace', $_GET['do']);
echo $_SESSION['requests'];
