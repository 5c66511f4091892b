package broker

import (
	"errors"
	"fmt"

	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/store/meta"
)

// refusal is an answer other than success: a code of the protocol and a text for the sender.
type refusal struct {
	code   int32
	remark string
}

func (r *refusal) Error() string { return r.remark }

func refuse(code int32, format string, args ...any) error {
	return &refusal{code, fmt.Sprintf(format, args...)}
}

// codeOf turns what a handler returned into code and remark. Bad fields, bodies and names are INVALID_PARAMETER: unlike
// code 1 it tells clients not to try the same with another broker.
func codeOf(err error) (code int32, remark string) {
	var (
		r *refusal
		f *remoting.FieldError
		b *remoting.BodyError
		m *meta.Invalid
	)
	switch {
	case errors.As(err, &r):
		return r.code, r.remark
	case errors.As(err, &f), errors.As(err, &b), errors.As(err, &m):
		return remoting.RespInvalidParameter, err.Error()
	}
	return remoting.RespSystemError, err.Error()
}

// clip shortens a text of the sender's for a remark.
func clip(s string) string {
	return remoting.Clip(s, 64)
}

const faq = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."

func noTopic(name string) error {
	return refuse(remoting.RespTopicNotExist, "topic[%s] not exist, apply first please!%s", clip(name), faq)
}
