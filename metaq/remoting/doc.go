// Package remoting is the wire format of RocketMQ's remoting protocol: frames, both header encodings, request and
// response codes, the typed headers of the hot requests and the JSON bodies that clients and servers exchange.
//
// It holds no connection and starts no goroutine; servers and clients are built on it. Start from [Header] to read a
// frame and from [Encoder] to write one.
//
// # Frame
//
//	pos  size         field
//	0    4            total: bytes that follow this field = 4 + H + body length
//	4    1            serialize type: 0 JSON, 1 ROCKETMQ binary
//	5    3            H: header length, unsigned
//	8    H            header
//	8+H  total-4-H    body
//
// Everything is big-endian. A frame is at most [MaxFrame] bytes, its length word included. An encoder answers in the
// encoding of the request; a decoder looks at each frame, because Java servers and clients mix the two on one connection.
//
// # Lifetime
//
// A decoded [Header] aliases the frame: keys, values and remark are strings over the frame's own bytes (or over the
// header's scratch space where JSON escapes had to be resolved). They are valid as long as the frame is, and until the
// next Decode of the same header. Clone what is kept (strings.Clone).
//
// # Sources
//
// Apache RocketMQ 5.3.3 (RemotingCommand.java, RocketMQSerializable.java, RequestCode.java, ResponseCode.java) and the
// behaviour of the clients Java 4.9/5.3, Go 2.1 and C++ as seen in recorded frames, a copy of which is in testdata.
package remoting
