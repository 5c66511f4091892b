package rocketmq

import "encoding/binary"

// CheckpointBytes is the size of the file checkpoint, and of config/timercheck.
const CheckpointBytes = 4096

// Checkpoint is RocketMQ's file of that name. Times are in milliseconds since 1970.
type Checkpoint struct {
	LogTime, QueueTime, IndexTime int64 // store times up to which log, consume queues and key index were synced
	MasterFlushed                 int64
	Confirm                       int64
}

// DecodeCheckpoint reads the file.
func DecodeCheckpoint(b []byte) (Checkpoint, bool) {
	if len(b) < 40 {
		return Checkpoint{}, false
	}
	at := func(i int) int64 { return int64(binary.BigEndian.Uint64(b[i:])) }
	return Checkpoint{LogTime: at(0), QueueTime: at(8), IndexTime: at(16), MasterFlushed: at(24), Confirm: at(32)}, true
}

// Encode makes the file.
func (c Checkpoint) Encode() []byte {
	b := make([]byte, CheckpointBytes)
	for i, n := range []int64{c.LogTime, c.QueueTime, c.IndexTime, c.MasterFlushed, c.Confirm} {
		binary.BigEndian.PutUint64(b[8*i:], uint64(n))
	}
	return b
}

// TimerCheckpoint is config/timercheck: how far the timer has come.
type TimerCheckpoint struct {
	ReadTime     int64 // slots before it, in milliseconds since 1970, were delivered
	LogFlushed   int64 // position in the timer log
	QueueOffset  int64 // messages of TimerTopic below it are in the wheel
	MasterOffset int64
	StateVersion int64
	Timestamp    int64
	Counter      int64
}

// DecodeTimerCheckpoint reads the file.
func DecodeTimerCheckpoint(b []byte) (TimerCheckpoint, bool) {
	if len(b) < 56 {
		return TimerCheckpoint{}, false
	}
	at := func(i int) int64 { return int64(binary.BigEndian.Uint64(b[i:])) }
	return TimerCheckpoint{at(0), at(8), at(16), at(24), at(32), at(40), at(48)}, true
}

// Encode makes the file.
func (c TimerCheckpoint) Encode() []byte {
	b := make([]byte, CheckpointBytes)
	for i, n := range []int64{c.ReadTime, c.LogFlushed, c.QueueOffset, c.MasterOffset, c.StateVersion, c.Timestamp, c.Counter} {
		binary.BigEndian.PutUint64(b[8*i:], uint64(n))
	}
	return b
}
