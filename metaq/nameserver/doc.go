// Package nameserver is RocketMQ's name server: brokers register themselves and their topics, clients ask which broker has a
// topic's queues.
//
// [Table] is the route table, a state machine without sockets and clocks. [NameServer] puts it behind the remoting protocol
// (its Serve is a server.Handler), expires silent brokers, and keeps the key-value configuration on disk. A broker in the
// same process registers through [NameServer.Register], which is what a REGISTER_BROKER frame ends in too.
//
// Routes are in memory only: brokers repeat their registration every 30 s. A broker disappears when it says so, when the
// connection it registered on closes, or 120 s after its last registration or heartbeat.
//
// A registration may leave the host of its address empty (":10911"). Each client is then told the host under which it reached
// the name server, so that a single machine works from the loop-back address and from outside without configuration.
//
// Implemented: 100..106, 205, 206, 216, 217, 219, 224, 304, 311..313, 322, 327, 901, 904. Everything else is answered with
// REQUEST_CODE_NOT_SUPPORTED and the name of the code. Not done: notices of a changed smallest broker id (905), zones,
// static topics.
//
// Protocol facts: NAMESRV's DefaultRequestProcessor, ClientRequestProcessor and RouteInfoManager of RocketMQ 5.3.3, and the
// recorded frames in ../remoting/testdata.
package nameserver
