package broker

// RECALL_MESSAGE (370): a message that waits for a time is taken back, by the handle in the answer to its send.
//
// The handle is RocketMQ's: version, topic, broker, time and UNIQ_KEY. RocketMQ stores a mark that takes the message away when its time comes, and
// answers success whether there is such a message or not. Here the message is looked for: when it was never there, or is
// delivered, the answer is 604.

import (
	"context"
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
)

const (
	handleVersion = "v1"
	recallWait    = 2 * time.Second // for the key index
)

// recallHandle adds the handle of a message that waits for a time. As in RocketMQ there is none for those in retry topics.
func (w *work) recallHandle(e *remoting.Encoder, m *store.Message, uniq string) {
	if strings.HasPrefix(m.Topic, meta.RetryPrefix) {
		return
	}
	text := w.id[:0]
	text = append(text, handleVersion+" "...)
	text = append(append(text, m.Topic...), ' ')
	text = append(append(text, w.b.cfg.Name...), ' ')
	text = append(strconv.AppendInt(text, m.DeliverAt, 10), ' ')
	text = append(text, uniq...)
	n := len(text)
	text = base64.URLEncoding.AppendEncode(text, text)
	e.Text("recallHandle", text[n:])
	w.id = text
}

// handle is what a recall handle says.
type handle struct {
	topic, broker string
	at            int64 // milliseconds since 1970; -1 when it is no number
	uniq          string
}

func parseHandle(text string) (h handle, ok bool) {
	b, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(text, "="))
	if err != nil {
		return h, false
	}
	parts := strings.SplitN(string(b), " ", 5)
	if len(parts) < 5 || parts[0] != handleVersion {
		return h, false
	}
	h = handle{topic: parts[1], broker: parts[2], uniq: parts[4]}
	if h.at, err = strconv.ParseInt(parts[3], 10, 64); err != nil {
		h.at = -1
	}
	return h, true
}

func recallMessage(c *call) error {
	uniq, err := c.recall()
	code, remark := remoting.RespSuccess, ""
	if err != nil {
		code, remark = codeOf(err)
	}
	e := c.burst.Reply(c.req, code, remark)
	if err == nil {
		e.String("msgId", uniq)
	}
	e.String("MSG_REGION", c.b.cfg.Region)
	c.burst.End(nil)
	return nil
}

func (c *call) recall() (uniq string, err error) {
	topic, err := c.req.Require("topic")
	if err != nil {
		return "", err
	}
	if c.b.store.Topics().Get(topic) == nil {
		return "", refuse(remoting.RespTopicNotExist, "recall failed, the topic[%s] not exist", clip(topic))
	}
	h, ok := parseHandle(c.req.Get("recallHandle"))
	illegal := func(text string) error { return refuse(remoting.RespIllegalOperation, "%s", text) }
	switch left := h.at - time.Now().UnixMilli(); {
	case !ok:
		return "", illegal("recall handle is invalid")
	case h.topic != topic:
		return "", illegal("recall failed, topic not match")
	case h.broker != c.b.cfg.Name:
		return "", illegal("recall failed, broker service not available")
	case left <= 0 || left > store.MaxDelay:
		return "", illegal("recall failed, timestamp invalid")
	}
	ctx, cancel := context.WithTimeout(context.Background(), recallWait)
	defer cancel()
	r, err := c.b.store.RecallDelay(ctx, topic, h.uniq)
	switch {
	case errors.Is(err, store.ErrNotIndexed), errors.Is(err, store.ErrClosed), errors.Is(err, context.DeadlineExceeded):
		return "", refuse(remoting.RespServiceNotAvailable, "recall failed, %s", err)
	case err != nil:
		return "", c.b.storeError(err)
	case r == store.RecallPublished:
		return "", illegal("recall failed, the message is delivered already")
	case r == store.RecallUnknown:
		return "", illegal("recall failed, no delayed message of the topic has this id")
	}
	c.b.stats.recalls.Add(1)
	return h.uniq, nil
}
