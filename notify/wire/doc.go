// Package wire is the codec of the Notify wire: NOTIFY_V1 frames as legacy clients speak them, and the opcodes that
// FusionMQ adds when both sides agree (docs/notify-wire.md).
//
// Start with [ParseHead] and [Parse] to take frames apart, [AppendRequest], [AppendResponse] and [Begin] to build
// them, and [MessageHeader] for what a message carries. [ActionFor] tells a transport what to do with bad input.
//
// Decoding never copies: every []byte of a decoded value aliases the frame it came from and is valid as long as that
// frame is. Encoding appends to the caller's buffer. A decoded struct may be decoded into again; it keeps the room of
// its slices, so a connection that reuses one decodes without allocating. Nothing here starts a goroutine or holds a
// lock, and all functions may be called from any goroutine on different values.
//
// Headers are proto2 messages with public field numbers. They are read strictly where a sender could be
// misunderstood (a missing required field, a wrong wire type, a group) and leniently elsewhere (unknown fields are
// skipped, the last value of a field wins, nested messages merge).
//
// The package imports nothing of this repository, so that clients can use it.
package wire
