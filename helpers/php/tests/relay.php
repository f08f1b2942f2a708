<?php

/*
 * A proxy between clients and the server on port $argv[1]. Prints its own port, and then repeats each command line that it has run:
 * "hold requests", "hold replies", "pass" (both again), "cut" (all connections).
 */

declare(strict_types=1);

$listener = stream_socket_server('tcp://127.0.0.1:0');
echo explode(':', stream_socket_get_name($listener, false))[1], "\n";
$other = []; // for each socket's number, the socket to which its data goes
$sockets = [];
$isClient = [];
$held = ['requests' => false, 'replies' => false];
stream_set_blocking(STDIN, false);

$close = function (int $number) use (&$other, &$sockets, &$isClient): void {
    foreach ([$number, isset($other[$number]) ? (int) $other[$number] : -1] as $end) {
        if (isset($sockets[$end])) {
            fclose($sockets[$end]);
            unset($sockets[$end], $other[$end], $isClient[$end]);
        }
    }
};

while (true) {
    $passing = array_filter($sockets, fn ($socket) => !$held[$isClient[(int) $socket] ? 'requests' : 'replies']);
    $ready = [STDIN, $listener, ...$passing];
    $none = null;
    if (!stream_select($ready, $none, $none, null)) {
        continue;
    }
    foreach ($ready as $socket) {
        if ($socket === STDIN) {
            $line = fgets(STDIN);
            if ($line === false && feof(STDIN)) {
                exit;
            }
            match (trim((string) $line)) {
                'hold requests' => $held['requests'] = true,
                'hold replies' => $held['replies'] = true,
                'pass' => $held = ['requests' => false, 'replies' => false],
                'cut' => array_map($close, array_keys($sockets)),
            };
            echo $line;
        } elseif ($socket === $listener) {
            $near = stream_socket_accept($listener);
            $far = stream_socket_client("tcp://127.0.0.1:$argv[1]");
            foreach ([[$near, $far, true], [$far, $near, false]] as [$from, $to, $client]) {
                $sockets[(int) $from] = $from;
                $other[(int) $from] = $to;
                $isClient[(int) $from] = $client;
            }
        } elseif (isset($sockets[(int) $socket])) {
            $data = fread($socket, 65536);
            if ($data === '' || $data === false || @fwrite($other[(int) $socket], $data) === false) {
                $close((int) $socket);
            }
        }
    }
}
