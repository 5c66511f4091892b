package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/fusionmq/fusionmq/integration/internal/push"
	"github.com/fusionmq/fusionmq/integration/internal/rmq"
	"github.com/fusionmq/fusionmq/notify/wire"
	"github.com/fusionmq/fusionmq/sdk-go/admin"
	"github.com/fusionmq/fusionmq/sdk-go/notify"
)

const (
	queues = 4
	large  = 20_000 // bytes; the RocketMQ client compresses bodies from 4 KiB on
)

// demo is one run.
type demo struct {
	options
	at    addresses
	out   io.Writer
	log   *log
	topic string
}

func (d *demo) run(ctx context.Context) error {
	d.topic = rmq.Unique("demo")
	if err := d.createTopic(ctx); err != nil {
		return err
	}
	sub, err := push.Subscribe(d.at.notify, rmq.Unique("S-demo"), d.topic, func(m *notify.Message) {
		keys, _ := m.Header.Value(wire.KeyKeys)
		colour, _ := m.Header.Value("colour")
		d.log.add(byPush, arrival{id: m.ID.String(), tag: m.Type, keys: keys, colour: colour, body: m.Body, at: time.Now()})
	})
	if err != nil {
		return fmt.Errorf("subscribe by push: %w", err)
	}
	defer sub.Close()
	consumer, err := rmq.Consumer(d.at.nameServer, rmq.Unique("demo-pull"), d.topic, "*", func(m *primitive.MessageExt) error {
		d.log.add(byPull, arrival{id: strings.ToLower(m.MsgId), tag: m.GetTags(), keys: m.GetKeys(), colour: m.GetProperty("colour"), body: m.Body, at: time.Now()})
		return nil
	})
	if err != nil {
		return fmt.Errorf("consume by pull: %w", err)
	}
	defer func() { _ = consumer.Shutdown() }() // nothing depends on a clean goodbye
	fmt.Fprintf(d.out, "topic %s: %d messages from a RocketMQ producer, %d from a Notify producer\n", d.topic, d.messages, d.notify)

	err = d.produce(ctx)
	if err == nil {
		err = d.log.wait(ctx)
	}
	fmt.Fprintln(d.out)
	if bad := d.log.report(d.out); err == nil {
		err = bad
	}
	return err
}

func (d *demo) createTopic(ctx context.Context) error {
	c, err := admin.New(d.at.http)
	if err != nil {
		return err
	}
	if _, err := c.CreateTopic(ctx, admin.NewTopic{Name: d.topic, Queues: queues}); err != nil {
		return fmt.Errorf("create topic %s: %w", d.topic, err)
	}
	return nil
}

// body of message n: every third one is large, so that its producer compresses it.
func body(from string, n int) (b []byte, compressed bool) {
	b = fmt.Appendf(nil, "message %d from %s. ", n, from)
	if n%3 == 0 {
		return bytes.Repeat(b, large/len(b)), true
	}
	return b, false
}

var (
	tags    = []string{"created", "paid", "shipped"}
	colours = []string{"red", "green", "blue"}
)

func (d *demo) produce(ctx context.Context) error {
	rocket, err := rmq.Producer(d.at.nameServer)
	if err != nil {
		return fmt.Errorf("RocketMQ producer: %w", err)
	}
	defer func() { _ = rocket.Shutdown() }()
	for n := range d.messages {
		b, compressed := body("RocketMQ", n)
		m := primitive.NewMessage(d.topic, b)
		m.WithTag(tags[n%len(tags)])
		m.WithKeys([]string{fmt.Sprintf("order-%d", n)})
		m.WithProperty("colour", colours[n/3%len(colours)])
		began := time.Now()
		r, err := rocket.SendSync(ctx, m)
		if err != nil {
			return fmt.Errorf("message %d from the RocketMQ producer: %w", n, err)
		}
		d.log.addSent(sent{id: strings.ToLower(r.MsgID), from: "rocketmq", tag: m.GetTags(), colour: m.GetProperty("colour"),
			keys: map[string]string{byPush: m.GetKeys(), byPull: m.GetKeys()},
			body: sha256.Sum256(b), size: len(b), compressed: compressed, at: began})
		if err := d.next(ctx, n+1); err != nil {
			return err
		}
	}
	publisher, err := push.Publisher(d.at.notify, rmq.Unique("P-demo"), large/2)
	if err != nil {
		return fmt.Errorf("notify producer: %w", err)
	}
	defer push.ClosePublisher(publisher)
	for n := range d.notify {
		b, compressed := body("Notify", n)
		colour, tag := colours[n/3%len(colours)], tags[n%len(tags)]
		m := &notify.Message{Topic: d.topic, Type: tag, Body: b}
		m.Header.Set("colour", colour)
		began := time.Now()
		r, err := publisher.Send(ctx, m)
		if err != nil {
			return fmt.Errorf("message %d from the Notify producer: %w", n, err)
		}
		d.log.addSent(sent{id: r.ID.String(), from: "notify", tag: tag, keys: map[string]string{byPull: r.ID.String()}, colour: colour, body: sha256.Sum256(b), size: len(b), compressed: compressed, at: began})
		if err := d.next(ctx, d.messages+n+1); err != nil {
			return err
		}
	}
	return nil
}

// next says how far the producers are and pauses.
func (d *demo) next(ctx context.Context, done int) error {
	if d.pause == 0 {
		return ctx.Err()
	}
	fmt.Fprintf(d.out, "sent %d of %d\n", done, d.messages+d.notify)
	timer := time.NewTimer(d.pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
