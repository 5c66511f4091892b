// Package view is the table of what each kind of view changes in the record that it shows (design: law 2), so that a body that is
// delivered late, committed or tried again reads as if a RocketMQ broker had written it once more.
//
// Every view sets queue id, queue offset, PHYSICALOFFSET (its address), STORETIMESTAMP (when the view was made) and the topic. The
// table has the rest. Born time and host, store host, flag, body and its checksum are those of the stored record.
package view

import (
	"strconv"

	"github.com/fusionmq/fusionmq/store/record"
)

// Kind is why a message is shown. The numbers are those of state.ViewKind.
type Kind uint8

const (
	Commit Kind = 1 + iota // a half that is committed
	Delay                  // due, stored with a level
	Timer                  // due, stored with a time
	Retry                  // sent back by a pull group
	Dead                   // a dead letter
	Aside                  // a half that nobody answers for
	Revive                 // given to a pull group by a pop, and not acknowledged
)

// Reasons of a dead letter, for Show.Level.
const (
	NoReason     = iota // as RocketMQ's, without a property
	TooManyTries        // the last attempt failed
	Expired             // its time to live was over before it was delivered
	reasons
)

var reasonText = [reasons]string{TooManyTries: "attempts", Expired: "expired"}

// Show is one view.
type Show struct {
	Kind         Kind
	Topic        string
	Queue        int32
	QueueOffset  int64
	Address      int64
	Time         int64 // of the view, milliseconds since 1970
	Origin       int64 // address of the message that is shown; of the half, for a commit
	MessageTopic string
	Reconsume    int32 // of a half that was moved aside: the checks made
	Level        int32 // of a retry: its delay level; of a dead letter: why
	PopTime      int64 // of a Revive: when it was given, milliseconds since 1970
}

type rule struct {
	txBits    int32 // set in SYSFLAG
	prepared  bool  // PREPARED_TX_OFFSET is the half's address, otherwise that of the stored record
	reconsume bool  // RECONSUMETIMES is that of the view, otherwise that of the stored record
	props     func(dst []byte, v record.View, s *Show) []byte
}

// What each kind changes beside what all change. Taken from the records of 4.9.7 and 5.3.3 brokers, which leave DELAY, REAL_TOPIC,
// REAL_QID and TRAN_MSG where they were.
var rules = [...]rule{
	Commit: {txBits: record.FlagTxCommit, prepared: true},
	Delay:  {},
	Timer:  {props: timerProps},
	Retry:  {reconsume: true, props: retryProps},
	Dead:   {reconsume: true, props: deadProps},
	Aside:  {props: asideProps},
	Revive: {reconsume: true, props: reviveProps},
}

// Names of properties that the table adds.
const (
	PropRealTopic    = "REAL_TOPIC"
	PropRealQueue    = "REAL_QID"
	PropDelay        = "DELAY"
	PropWait         = "WAIT"
	PropRetryTopic   = "RETRY_TOPIC"
	PropOrigin       = "ORIGIN_MESSAGE_ID"
	PropTimerOut     = "TIMER_OUT_MS"
	PropTimerEnqueue = "TIMER_ENQUEUE_MS"
	PropTimerDequeue = "TIMER_DEQUEUE_MS"
	PropCheckTimes   = "TRANSACTION_CHECK_TIMES"
	PropFirstPop     = "1ST_POP_TIME"
	PropReason       = "__reason" // no client may send it
)

func timerProps(dst []byte, v record.View, s *Show) []byte {
	if _, ok := v.Property(PropTimerDequeue); ok {
		return append(dst, v.Properties()...)
	}
	dst = append(dst, v.Properties()...)
	dst = record.AppendProperty(dst, PropTimerEnqueue, strconv.FormatInt(v.StoreTime(), 10))
	return record.AppendProperty(dst, PropTimerDequeue, strconv.FormatInt(s.Time, 10))
}

// sentBack are the properties that a message keeps from the first time that it is sent back.
func sentBack(dst []byte, v record.View, s *Show, level int32) []byte {
	if _, ok := v.Property(PropRetryTopic); !ok {
		dst = record.AppendProperty(dst, PropRetryTopic, s.MessageTopic)
	}
	if _, ok := v.Property(PropOrigin); !ok {
		dst = record.AppendProperty(dst, PropOrigin, record.OffsetID(v.StoreHost(), s.Origin))
	}
	dst = record.AppendProperty(dst, PropDelay, strconv.Itoa(int(level)))
	return record.AppendProperty(dst, PropWait, "false")
}

func retryProps(dst []byte, v record.View, s *Show) []byte {
	dst = record.AppendWithout(dst, v.Properties(), PropWait, PropDelay, PropRealTopic, PropRealQueue)
	dst = sentBack(dst, v, s, s.Level)
	dst = record.AppendProperty(dst, PropRealTopic, s.Topic)
	return record.AppendProperty(dst, PropRealQueue, strconv.Itoa(int(s.Queue)))
}

func deadProps(dst []byte, v record.View, s *Show) []byte {
	dst = record.AppendWithout(dst, v.Properties(), PropWait, PropDelay, PropReason)
	dst = sentBack(dst, v, s, 0)
	if s.Level > NoReason && s.Level < reasons {
		dst = record.AppendProperty(dst, PropReason, reasonText[s.Level])
	}
	return dst
}

func asideProps(dst []byte, v record.View, s *Show) []byte {
	dst = record.AppendWithout(dst, v.Properties(), PropCheckTimes)
	return record.AppendProperty(dst, PropCheckTimes, strconv.Itoa(int(s.Reconsume)))
}

func reviveProps(dst []byte, v record.View, s *Show) []byte {
	if _, ok := v.Property(PropFirstPop); ok && v.ReconsumeTimes() > 0 {
		return append(dst, v.Properties()...)
	}
	dst = record.AppendWithout(dst, v.Properties(), PropFirstPop)
	return record.AppendProperty(dst, PropFirstPop, strconv.FormatInt(s.PopTime, 10))
}

// Append appends the record v as s shows it. The body is copied, nothing but the head, the topic and the properties is looked at. A
// kind that is not known changes what all change. Properties that would be too long for a record stay as they are stored.
func Append(dst []byte, v record.View, s *Show) []byte {
	var r rule
	if int(s.Kind) < len(rules) {
		r = rules[s.Kind]
	}
	p := record.Patch{
		Topic: s.Topic, QueueID: s.Queue, QueueOffset: s.QueueOffset, PhysicalOffset: s.Address, StoreTime: s.Time,
		SysFlag: v.SysFlag() | r.txBits, ReconsumeTimes: v.ReconsumeTimes(), PreparedOffset: v.PreparedOffset(),
	}
	if r.prepared {
		p.PreparedOffset = s.Origin
	}
	if r.reconsume {
		p.ReconsumeTimes = s.Reconsume
	}
	if r.props != nil {
		if p.Properties = r.props(make([]byte, 0, len(v.Properties())+256), v, s); len(p.Properties) > record.MaxPropertiesBytes {
			p.Properties = nil
		}
	}
	return v.AppendPatched(dst, &p)
}
