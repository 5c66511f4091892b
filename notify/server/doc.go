// Package server speaks the Notify wire (package wire, docs/notify-wire.md) for a [notify.Service].
//
// [Listen] starts it. Every connection is a [notify.Session]; nothing here decides about messages.
//
// Reading: Readable is called when bytes are there (package socket). Whole frames are handled where they lie, a burst at a time: all
// sends of a burst become one append, all acknowledgements one pass over their group, all answers one write. The rest
// of a half frame is copied out, so that no goroutine waits for a slow sender. A client that sends faster than it is handled is
// no longer read until that is done, so its bytes wait on its side; what all connections together have sent and nobody has
// handled is bounded by MaxInput.
//
// Writing: a connection has at most one writer. A burst writes its own answers; a push starts a goroutine, which loads
// the messages, encodes them and writes until nothing is left, and ends. What waits for a connection are heads, bounded by
// their size; a connection that is full is not chosen for the next message. Bytes go to the socket directly; only when the
// peer's window is full does the writer, and nobody else, wait, at most WriteTimeout for each piece. A peer that does not
// read is cut off then. So an idle connection holds no goroutine and no buffer of ours, and one that stalls costs only
// itself.
//
// A panic in a connection closes that connection, with a stack in the log.
package server
