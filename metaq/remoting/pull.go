package remoting

// Bits of PullHeader.SysFlag.
const (
	PullCommitOffset int32 = 1 << 0 // store CommitOffset as the group's progress
	PullSuspend      int32 = 1 << 1 // hold the request when nothing is there
	PullSubscription int32 = 1 << 2 // Subscription of this request is the filter, not the one of the heartbeat
	PullClassFilter  int32 = 1 << 3 // obsolete
	PullLite         int32 = 1 << 4 // set with LITE_PULL_MESSAGE
)

// PullHeader is the header of PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361). Strings alias the frame.
type PullHeader struct {
	ConsumerGroup        string
	Topic                string
	QueueID              int32
	QueueOffset          int64 // first offset wanted
	MaxMsgNums           int32
	SysFlag              int32 // Pull... bits
	CommitOffset         int64
	SuspendTimeoutMillis int64
	Subscription         string
	SubVersion           int64  // milliseconds with Java and C++, 0 with Go
	ExpressionType       string // "" and TAG mean tags; SQL92
	MaxMsgBytes          int32  // 0 when absent
	RequestSource        int32  // -1 when absent: a client SDK
}

const (
	pullGroup = 1 << iota
	pullTopic
	pullQueueID
	pullQueueOffset
	pullMaxMsgNums
	pullSysFlag
)

var pullRequired = [...]string{"consumerGroup", "topic", "queueId", "queueOffset", "maxMsgNums", "sysFlag"}

// Read fills p from the ext fields of h. A required field that is missing, or a number that cannot be read, is a *FieldError.
// commitOffset, suspendTimeoutMillis and subVersion are required by RocketMQ, but 0 harms nobody.
func (p *PullHeader) Read(h *Header) error {
	*p = PullHeader{RequestSource: -1}
	seen := 0
	for i := range h.Ext {
		f := &h.Ext[i]
		var err error
		switch f.Key {
		case "consumerGroup":
			p.ConsumerGroup, seen = f.Value, seen|pullGroup
		case "topic":
			p.Topic, seen = f.Value, seen|pullTopic
		case "queueId":
			err, seen = f.int32(&p.QueueID), seen|pullQueueID
		case "queueOffset":
			err, seen = f.int64(&p.QueueOffset), seen|pullQueueOffset
		case "maxMsgNums":
			err, seen = f.int32(&p.MaxMsgNums), seen|pullMaxMsgNums
		case "sysFlag":
			err, seen = f.int32(&p.SysFlag), seen|pullSysFlag
		case "commitOffset":
			err = f.int64(&p.CommitOffset)
		case "suspendTimeoutMillis":
			err = f.int64(&p.SuspendTimeoutMillis)
		case "subscription":
			p.Subscription = f.Value
		case "subVersion":
			err = f.int64(&p.SubVersion)
		case "expressionType":
			p.ExpressionType = f.Value
		case "maxMsgBytes":
			err = f.optInt32(&p.MaxMsgBytes)
		case "requestSource":
			err = f.optInt32(&p.RequestSource)
		}
		if err != nil {
			return err
		}
	}
	return missing(seen, pullRequired[:])
}

// Write adds the fields to a request.
func (p *PullHeader) Write(e *Encoder) {
	e.String("consumerGroup", p.ConsumerGroup)
	e.String("topic", p.Topic)
	e.Int("queueId", int64(p.QueueID))
	e.Int("queueOffset", p.QueueOffset)
	e.Int("maxMsgNums", int64(p.MaxMsgNums))
	e.Int("sysFlag", int64(p.SysFlag))
	e.Int("commitOffset", p.CommitOffset)
	e.Int("suspendTimeoutMillis", p.SuspendTimeoutMillis)
	e.String("subscription", p.Subscription)
	e.Int("subVersion", p.SubVersion)
	if p.ExpressionType != "" {
		e.String("expressionType", p.ExpressionType)
	}
	if p.MaxMsgBytes > 0 {
		e.Int("maxMsgBytes", int64(p.MaxMsgBytes))
	}
}

// PullResult is the response header of a pull. Clients parse its first four fields without a null check on codes 0, 19, 20
// and 21, so they are always written.
type PullResult struct {
	SuggestBrokerID int64 // 0: pull from the master again
	NextBeginOffset int64
	MinOffset       int64
	MaxOffset       int64
}

// Write adds the fields to a response.
func (r *PullResult) Write(e *Encoder) {
	e.Int("suggestWhichBrokerId", r.SuggestBrokerID)
	e.Int("nextBeginOffset", r.NextBeginOffset)
	e.Int("minOffset", r.MinOffset)
	e.Int("maxOffset", r.MaxOffset)
}

// Read fills r from a response.
func (r *PullResult) Read(h *Header) (err error) {
	*r = PullResult{}
	if r.SuggestBrokerID, err = h.OptInt64("suggestWhichBrokerId", 0); err != nil {
		return err
	}
	if r.NextBeginOffset, err = h.Int64("nextBeginOffset"); err != nil {
		return err
	}
	if r.MinOffset, err = h.Int64("minOffset"); err != nil {
		return err
	}
	r.MaxOffset, err = h.Int64("maxOffset")
	return err
}
