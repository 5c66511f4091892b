// Package notify is the Go client of the Notify wire: a [Publisher] sends messages, a [Subscriber] gets them pushed.
//
//	p, err := notify.NewPublisher("P-trade", []string{"127.0.0.1:9877"})
//	r, err := p.Send(ctx, &notify.Message{Topic: "TRADE", Type: "created", Body: body})
//
//	s, err := notify.NewSubscriber("S-stock", servers, func(ctx context.Context, m *notify.Message) error { ... })
//	err = s.Subscribe(ctx, notify.Direct("TRADE", "created"))
//
// Delivery is at least once: a handler may see a message again, under the same id. A send that failed with
// [CodeTimeout] may have been stored; sending the same Message again, whose ID is set by then, cannot store it twice
// within the server's memory of ids.
//
// Each client keeps one connection to every server it was given and makes it again, every two seconds, for as long as
// it is open. With a FusionMQ server it agrees on deliveries and acknowledgements in batches and on credit; with a server
// that speaks plain NOTIFY_V1 it does without. Per connection there are two goroutines, one that reads and one that
// writes, and a Subscriber has a fixed number of workers; all of them end before Close returns. Nothing is started per
// message.
//
// Bad input never panics and costs memory up to the limits of the wire: a frame of 16 MiB a connection, the window of
// a Subscriber, and what a compressed body may grow to ([WithMaxBody]).
package notify
