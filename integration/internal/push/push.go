// Package push starts sdk-go's Notify clients as tests and the demo need them: one server, ready when the call returns, closed within a bound.
package push

import (
	"context"
	"time"

	"github.com/fusionmq/fusionmq/sdk-go/notify"
)

// limit bounds everything here that waits for a server.
const limit = 30 * time.Second

// Subscriber is one connected member of a group.
type Subscriber struct{ s *notify.Subscriber }

// Subscribe connects a member of group to the server at addr and registers it for every message of topic. The group is kept by the server
// when its last member goes. handle is called from many goroutines; a message is acknowledged when it returns.
func Subscribe(addr, group, topic string, handle func(*notify.Message), options ...notify.Option) (*Subscriber, error) {
	s, err := notify.NewSubscriber(group, []string{addr}, func(_ context.Context, m *notify.Message) error {
		handle(m)
		return nil
	}, options...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	sub := &Subscriber{s}
	if err := s.WaitReady(ctx); err != nil {
		sub.Close()
		return nil, err
	}
	if err := s.Subscribe(ctx, notify.Fanout(topic)); err != nil {
		sub.Close()
		return nil, err
	}
	return sub, nil
}

// Close disconnects; what no handler had started comes again to another member.
func (s *Subscriber) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	_ = s.s.Close(ctx) // handlers here end by themselves
}

// Publisher connects a producer of group, ready to send. Bodies of compressFrom bytes and more are compressed; 0 is none.
func Publisher(addr, group string, compressFrom int) (*notify.Publisher, error) {
	options := []notify.Option{notify.WithTimeout(10 * time.Second)}
	if compressFrom > 0 {
		options = append(options, notify.WithCompression(compressFrom, 5))
	}
	p, err := notify.NewPublisher(group, []string{addr}, options...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := p.WaitReady(ctx); err != nil {
		ClosePublisher(p)
		return nil, err
	}
	return p, nil
}

// ClosePublisher closes p within a bound.
func ClosePublisher(p *notify.Publisher) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	_ = p.Close(ctx) // whoever sent has waited for the answer
}
