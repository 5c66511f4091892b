// Package socket is the TCP side of a server that keeps many connections and few goroutines. It knows nothing of any protocol: both
// front ends build theirs on it, and it is the one place that knows netpoll.
//
// Start with [Serve]. For every connection the host gives a [Handler]: Readable is called when bytes have arrived, Closed when the
// connection is gone. What the host sends goes through [Conn.TryWrite], which never blocks, and [Conn.Write], which waits for a
// peer whose window is full.
//
// # Order of calls
//
// Options.Open comes first. Calls of Readable never overlap. Closed comes once, after the last Readable has returned; a
// Write that waits has failed by then. Calls for different connections overlap.
//
// # Pressure
//
// A peer may send faster than it is handled. Readable then stops with [ErrBehind], and nothing is read from that connection until it
// has handled what is there: the peer's bytes wait in the kernel, and soon on the peer's side. netpoll knows no such pause, so the
// connection is detached from it and registered anew. While a Readable is in work netpoll reads ahead of it without a bound; what
// that may take is the host's to limit, who finds it with [Conn.Buffered].
//
// # Goroutines
//
// One accepts, for each Serve; it ends in Close. netpoll has one poller for all connections of the process, and hands Readable to
// workers that go when there is nothing to handle. An idle connection has none. [Configure] says how both behave.
package socket
