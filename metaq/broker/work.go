package broker

import (
	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/metaq/server"
	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/queue"
)

// work is what the handling of one burst needs. It is taken from a pool, so that idle connections own none.
type work struct {
	b     *Broker
	burst *server.Burst
	peer  *peer

	sendHeader remoting.SendHeader
	asked      asked // by the message that is looked at
	pullHeader remoting.PullHeader
	sends      []sent
	messages   []store.Message
	results    []store.Result
	pending    int    // bytes of messages
	arena      []byte // property text of messages
	id         []byte // an offset message id, or a recall handle
	ends       []store.HalfEnd
	endings    []*server.Request // of ends
	pulls      []*server.Request
	entries    [64]queue.Entry
}

// What may go back to the pool: the arena in bytes, and messages in line.
const keepArena, keepMessages = 1 << 20, 4096

// serve handles a burst: sends gather and are stored together, ends of transactions likewise, pulls are answered last so that they see what the burst
// stored, and anything else takes effect after the sends before it.
func (b *Broker) serve(burst *server.Burst) {
	w := b.works.Get().(*work)
	w.burst, w.peer = burst, peerOf(burst.Conn)
	for i := range burst.Requests {
		r := &burst.Requests[i]
		switch r.Code {
		case remoting.ReqSendMessage, remoting.ReqSendMessageV2, remoting.ReqSendBatchMessage:
			w.send(r)
			continue
		case remoting.ReqPullMessage, remoting.ReqLitePullMessage:
			w.pulls = append(w.pulls, r)
		case remoting.ReqEndTransaction:
			w.append()
			w.end(r)
		default:
			w.append()
			w.endAll()
			w.other(r)
		}
		if !burst.Continue() && burst.Cut() { // one that is gone may have stored its offsets as the last thing it did
			break
		}
	}
	w.append()
	w.endAll()
	for _, r := range w.pulls {
		if !burst.Continue() {
			break
		}
		w.pull(r)
	}
	clear(w.pulls)
	w.pulls, w.burst, w.peer = w.pulls[:0], nil, nil
	if cap(w.arena) <= keepArena && cap(w.messages) <= keepMessages {
		b.works.Put(w)
	}
}

// other handles every request that is not on the hot path.
func (w *work) other(r *server.Request) {
	h := handlers[r.Code]
	if h == nil {
		w.burst.Unsupported(r)
		return
	}
	c := &call{b: w.b, burst: w.burst, peer: w.peer, req: r}
	if err := h(c); err != nil {
		code, remark := codeOf(err)
		w.burst.Fail(r, code, remark)
	}
}

// call is one request with the means to answer it.
type call struct {
	b     *Broker
	burst *server.Burst
	peer  *peer
	req   *server.Request
}

// ok answers success without fields.
func (c *call) ok() error {
	c.burst.Reply(c.req, remoting.RespSuccess, "")
	c.burst.End(nil)
	return nil
}

// number answers success with one field.
func (c *call) number(field string, n int64) error {
	c.burst.Reply(c.req, remoting.RespSuccess, "").Int(field, n)
	c.burst.End(nil)
	return nil
}

// json answers success with a body.
func (c *call) json(v any) error {
	body, err := remoting.EncodeBody(v)
	if err != nil {
		return err
	}
	c.burst.Reply(c.req, remoting.RespSuccess, "")
	c.burst.End(body)
	return nil
}

// handlers serve the request codes other than send and pull; a code that is not here is answered with
// REQUEST_CODE_NOT_SUPPORTED and its name. A handler answers, or returns an error without having begun an answer.
var handlers = map[int32]func(*call) error{
	remoting.ReqQueryMessage:                     queryMessage,
	remoting.ReqQueryConsumerOffset:              queryConsumerOffset,
	remoting.ReqUpdateConsumerOffset:             updateConsumerOffset,
	remoting.ReqSearchOffsetByTimestamp:          searchOffset,
	remoting.ReqGetMaxOffset:                     maxOffset,
	remoting.ReqGetMinOffset:                     minOffset,
	remoting.ReqGetEarliestMsgStoretime:          earliestTime,
	remoting.ReqViewMessageByID:                  viewMessage,
	remoting.ReqHeartBeat:                        heartbeat,
	remoting.ReqUnregisterClient:                 unregisterClient,
	remoting.ReqConsumerSendMsgBack:              sendBack,
	remoting.ReqGetConsumerListByGroup:           consumerList,
	remoting.ReqLockBatchMQ:                      lockQueues,
	remoting.ReqUnlockBatchMQ:                    unlockQueues,
	remoting.ReqInvokeBrokerToResetOffset:        resetOffset,
	remoting.ReqCheckClientConfig:                checkClientConfig,
	remoting.ReqGetConsumerConnectionList:        consumerConnections,
	remoting.ReqGetProducerConnectionList:        producerConnections,
	remoting.ReqUpdateAndCreateTopic:             updateTopic,
	remoting.ReqGetTopicConfig:                   topicConfig,
	remoting.ReqGetAllTopicConfig:                allTopics,
	remoting.ReqUpdateAndCreateSubscriptionGroup: updateGroup,
	remoting.ReqGetAllSubscriptionGroupConfig:    allGroups,
	remoting.ReqGetSubscriptionGroupConfig:       groupConfig,
	remoting.ReqGetBrokerRuntimeInfo:             runtimeInfo,
	remoting.ReqRecallMessage:                    recallMessage,
}
