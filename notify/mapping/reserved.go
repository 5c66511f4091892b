package mapping

// reserved are the property names that RocketMQ gives a meaning or keeps for itself (spec/remoting.md 4.3). A Notify
// header of such a name travels under PrefixHeader, and none of them reaches a Notify subscriber as a header.
var reserved = makeSet(
	"KEYS", "TAGS", "WAIT", "DELAY", "RETRY_TOPIC", "REAL_TOPIC", "REAL_QID", "TRAN_MSG", "PGROUP", "MIN_OFFSET", "MAX_OFFSET",
	"BUYER_ID", "ORIGIN_MESSAGE_ID", "TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG", "RECONSUME_TIME", "MAX_RECONSUME_TIMES",
	"MSG_REGION", "TRACE_ON", "UNIQ_KEY", "EXTEND_UNIQ_INFO", "CONSUME_START_TIME", "INNER_NUM", "INNER_BASE", "DUP_INFO",
	"CHECK_IMMUNITY_TIME_IN_SECONDS", "TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES", "__transactionId__", "INSTANCE_ID",
	"CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "ARRIVE_TIME", "PUSH_REPLY_TIME", "CLUSTER", "MSG_TYPE",
	"POP_CK", "POP_CK_OFFSET", "1ST_POP_TIME", "__SHARDINGKEY", "SHARDING_KEY", "PROPERTY_FORWARD_QUEUE_ID", "REDIRECT",
	"INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET", "TRACE_CONTEXT", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS",
	"TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES", "TIMER_OUT_MS", "TIMER_DEL_UNIQKEY", "TIMER_DELAY_LEVEL",
	"__BORNHOST", "BORN_TIMESTAMP", "__RMQ.TRANSIENT.TOPIC_SYS_FLAG", "__RMQ.TRANSIENT.GROUP_SYS_FLAG", "__CRC32#",
	"DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID",
)

func makeSet(names ...string) map[string]struct{} {
	m := make(map[string]struct{}, len(names))
	for _, n := range names {
		m[n] = struct{}{}
	}
	return m
}

// reservedBy finds the few reserved names that a name can be equal to: a record has four of them as a rule, and a map
// costs more than all else that is done with one.
var reservedBy = func() (by [64][]string) {
	for n := range reserved {
		i := reservedAt(len(n), n[len(n)-1])
		by[i] = append(by[i], n)
	}
	return by
}()

func reservedAt(length int, last byte) int { return (length*5 + int(last)) & 63 }

// Reserved tells whether RocketMQ reserves a property name.
func Reserved(name []byte) bool {
	if len(name) == 0 || name[0] >= 'a' { // all start with a digit, a capital or '_'
		return false
	}
	for _, n := range reservedBy[reservedAt(len(name), name[len(name)-1])] {
		if n == string(name) {
			return true
		}
	}
	return false
}
