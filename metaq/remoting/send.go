package remoting

// SendHeader is the header of SEND_MESSAGE (10), SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320) and the two reply sends
// (324, 325). The V2 forms spell their fields with one letter; both spellings are read whatever the code says, as RocketMQ
// does. Strings alias the frame.
type SendHeader struct {
	ProducerGroup         string
	Topic                 string
	DefaultTopic          string // template for auto-creation, normally TBW102
	DefaultTopicQueueNums int32  // queues wanted for an auto-created topic
	QueueID               int32  // negative: the broker picks
	SysFlag               int32  // of the message
	BornTimestamp         int64  // milliseconds since 1970, the producer's clock
	Flag                  int32  // the user's, opaque
	Properties            string // name 0x01 value 0x02 ...
	ReconsumeTimes        int32
	UnitMode              bool
	MaxReconsumeTimes     int32 // -1 when absent
	Batch                 bool  // the body is a batch, whatever the code
	BrokerName            string
}

const (
	sendProducerGroup = 1 << iota
	sendTopic
	sendQueueID
	sendSysFlag
	sendBornTimestamp
	sendFlag
)

var sendRequired = [...]string{"producerGroup", "topic", "queueId", "sysFlag", "bornTimestamp", "flag"}

// Read fills s from the ext fields of h. A required field that is missing, or a number that cannot be read, is a *FieldError.
func (s *SendHeader) Read(h *Header) error {
	*s = SendHeader{MaxReconsumeTimes: -1}
	seen := 0
	for i := range h.Ext {
		f := &h.Ext[i]
		var err error
		switch sendLetter(f.Key) {
		case 'a':
			s.ProducerGroup, seen = f.Value, seen|sendProducerGroup
		case 'b':
			s.Topic, seen = f.Value, seen|sendTopic
		case 'c':
			s.DefaultTopic = f.Value
		case 'd':
			err = f.int32(&s.DefaultTopicQueueNums)
		case 'e':
			err, seen = f.int32(&s.QueueID), seen|sendQueueID
		case 'f':
			err, seen = f.int32(&s.SysFlag), seen|sendSysFlag
		case 'g':
			err, seen = f.int64(&s.BornTimestamp), seen|sendBornTimestamp
		case 'h':
			err, seen = f.int32(&s.Flag), seen|sendFlag
		case 'i':
			s.Properties = f.Value
		case 'j':
			err = f.optInt32(&s.ReconsumeTimes)
		case 'k':
			s.UnitMode = parseBool(f.Value)
		case 'l':
			err = f.optInt32(&s.MaxReconsumeTimes)
		case 'm':
			s.Batch = parseBool(f.Value)
		case 'n':
			s.BrokerName = f.Value
		}
		if err != nil {
			return err
		}
	}
	return missing(seen, sendRequired[:])
}

// sendLetter is the one-letter name of a field, which is written in either form; 0 for a field that a send does not have.
func sendLetter(name string) byte {
	if len(name) == 1 {
		return name[0]
	}
	switch name {
	case "producerGroup":
		return 'a'
	case "topic":
		return 'b'
	case "defaultTopic":
		return 'c'
	case "defaultTopicQueueNums":
		return 'd'
	case "queueId":
		return 'e'
	case "sysFlag":
		return 'f'
	case "bornTimestamp":
		return 'g'
	case "flag":
		return 'h'
	case "properties":
		return 'i'
	case "reconsumeTimes":
		return 'j'
	case "unitMode":
		return 'k'
	case "maxReconsumeTimes":
		return 'l'
	case "batch":
		return 'm'
	case "bname":
		return 'n'
	}
	return 0
}

// Write adds the fields to a request: one-letter names when v2.
func (s *SendHeader) Write(e *Encoder, v2 bool) {
	name := func(long, short string) string {
		if v2 {
			return short
		}
		return long
	}
	e.String(name("producerGroup", "a"), s.ProducerGroup)
	e.String(name("topic", "b"), s.Topic)
	e.String(name("defaultTopic", "c"), s.DefaultTopic)
	e.Int(name("defaultTopicQueueNums", "d"), int64(s.DefaultTopicQueueNums))
	e.Int(name("queueId", "e"), int64(s.QueueID))
	e.Int(name("sysFlag", "f"), int64(s.SysFlag))
	e.Int(name("bornTimestamp", "g"), s.BornTimestamp)
	e.Int(name("flag", "h"), int64(s.Flag))
	e.String(name("properties", "i"), s.Properties)
	e.Int(name("reconsumeTimes", "j"), int64(s.ReconsumeTimes))
	e.Bool(name("unitMode", "k"), s.UnitMode)
	if s.MaxReconsumeTimes >= 0 {
		e.Int(name("maxReconsumeTimes", "l"), int64(s.MaxReconsumeTimes))
	}
	e.Bool(name("batch", "m"), s.Batch)
	if s.BrokerName != "" {
		e.String(name("bname", "n"), s.BrokerName)
	}
}

// SendResult is the response header of a send: code 0 and the three codes that mean stored (10, 11, 12).
type SendResult struct {
	MsgID         string // offset message id; of a batch all ids joined by commas
	QueueID       int32
	QueueOffset   int64  // of the first message
	TransactionID string // the message's UNIQ_KEY when it has one
	RegionID      string // ext MSG_REGION
}

// Write adds the fields to a response. TRACE_ON is always true, as with a broker in default settings.
func (r *SendResult) Write(e *Encoder) {
	e.String("msgId", r.MsgID)
	e.Int("queueId", int64(r.QueueID))
	e.Int("queueOffset", r.QueueOffset)
	if r.TransactionID != "" {
		e.String("transactionId", r.TransactionID)
	}
	e.String("MSG_REGION", r.RegionID)
	e.String("TRACE_ON", "true")
}

// Read fills r from a response.
func (r *SendResult) Read(h *Header) (err error) {
	*r = SendResult{TransactionID: h.Get("transactionId"), RegionID: h.Get("MSG_REGION")}
	if r.MsgID, err = h.Require("msgId"); err != nil {
		return err
	}
	if r.QueueID, err = h.Int32("queueId"); err != nil {
		return err
	}
	r.QueueOffset, err = h.Int64("queueOffset")
	return err
}

// missing names the first required field whose bit is not in seen.
func missing(seen int, names []string) error {
	if seen == 1<<len(names)-1 {
		return nil
	}
	for i, n := range names {
		if seen&(1<<i) == 0 {
			return &FieldError{Field: n, Missing: true}
		}
	}
	return nil
}

func (f *Field) int64(to *int64) error {
	n, ok := parseInt(f.Value)
	if !ok {
		return &FieldError{Field: f.Key, Value: clip(f.Value), Want: wantInt64}
	}
	*to = n
	return nil
}

func (f *Field) int32(to *int32) error {
	n, ok := parseInt(f.Value)
	if !ok || int64(int32(n)) != n {
		return &FieldError{Field: f.Key, Value: clip(f.Value), Want: wantInt32}
	}
	*to = int32(n)
	return nil
}

// optInt32 leaves to alone when the value is empty.
func (f *Field) optInt32(to *int32) error {
	if f.Value == "" {
		return nil
	}
	return f.int32(to)
}
