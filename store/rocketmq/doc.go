// Package rocketmq reads and writes the files of an Apache RocketMQ store directory that are not the log: consume queues with
// their extension, key index, checkpoint, timer wheel and timer log, and the offsets of delays. And it tells of a log what was
// open when the broker stopped: transactions, delays, timers ([Open]).
//
// Formats are those of brokers 4.9 and 5.x with the file store. Integers are big-endian. Sizes of files are configuration of the
// broker; a reader takes them from the files. Decoders take any bytes: what is not valid gives an error or ok false, and no
// length from a file is believed before it was compared with what is there.
package rocketmq

// Topics that a broker keeps its own state in.
const (
	HalfTopic     = "RMQ_SYS_TRANS_HALF_TOPIC"    // undecided transactions, queue 0
	OpTopic       = "RMQ_SYS_TRANS_OP_HALF_TOPIC" // which of them were decided
	ScheduleTopic = "SCHEDULE_TOPIC_XXXX"         // delays by level; queue level-1
	TimerTopic    = "rmq_sys_wheel_timer"         // delays to any time, queue 0
	RevivePrefix  = "rmq_sys_REVIVE_LOG_"         // pop: check points and acknowledgements
	LightPrefix   = "%LMQ%"                       // light queues: further queues of the same record
)

// Groups under which a broker keeps how far it has read those topics.
const (
	TransactionGroup = "CID_RMQ_SYS_TRANS"
	ReviveGroup      = "CID_RMQ_SYS_REVIVE_GROUP"
)

// Properties of records in those topics.
const (
	PropRealTopic     = "REAL_TOPIC"
	PropRealQueue     = "REAL_QID"
	PropProducerGroup = "PGROUP"
	PropDelay         = "DELAY"
	PropChecks        = "TRANSACTION_CHECK_TIMES"
	PropTimerOut      = "TIMER_OUT_MS"
	PropTimerDelete   = "TIMER_DEL_UNIQKEY"
	PropLight         = "INNER_MULTI_DISPATCH"
	PropLightOffsets  = "INNER_MULTI_QUEUE_OFFSET"
)
