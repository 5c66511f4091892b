// Package server accepts RocketMQ connections and hands whole bursts of requests to a [Handler].
//
// Start with [Listen]. For every connection that has bytes to read, the server takes all whole frames that are there (up to
// MaxBurst), decodes their headers, calls the handler once with the [Burst], and writes all answers with one system call. A
// client that pipelines thus costs a fraction of one that does not; a handler that can batch (append of many messages) sees
// the batch. Half a frame is copied aside, so neither a goroutine nor the buffers below wait for its rest.
//
// A request that cannot be answered yet (a long poll) is taken with [Burst.Hold] and answered later by [Conn.Send] from any
// goroutine; the server's own requests to a client go through [Conn.Oneway] and [Conn.Call].
//
// # Writing
//
// Every frame that goes out is in an [Output]. Outputs of one connection are queued, and whoever finds no writer writes all
// that is queued with one writev that does not block. When the peer's window is full, the burst's own goroutine waits (so a
// client that does not read is not read from either), or a goroutine is started for it; bodies that are views of mapped
// memory are released when they are written or the connection is gone. What is queued is bounded by MaxPending.
//
// # Pressure
//
// A client may send faster than its requests are handled: a producer without a window over a slow disk. After a burst that leaves
// more than 4 MiB behind, nothing is read from the connection until that is handled, and TCP slows the client down. What
// all connections together have sent and nobody has handled is bounded by MaxInput. Answers of one burst that are
// large are written between its requests, at the client's pace, by handlers that ask [Burst.Continue].
//
// # What may go wrong outside
//
// A malformed frame, a foreign protocol, half a frame without progress, a peer that does not read, the one with the most
// input when that is too much, silence for IdleTimeout: the connection is closed, counted in [Stats] and logged, at most
// 20 lines a second and server. A panic in the handler is answered with code 1 on every request of the burst that has no
// answer yet, logged with its stack and counted; the connection stays. Panics of hooks are contained too.
//
// # Goroutines
//
// One accepts, one looks after timeouts; both end in Shutdown. netpoll has one for all connections, and runs handlers on a
// pool while there is something to handle. An idle connection has none, and no buffer.
package server
