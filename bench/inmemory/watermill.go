package main

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/ojsengine/ojs/bench/internal/load"
)

const topic = "jobs"

// startWatermill publishes to one topic with one subscription, since every subscription
// gets every message, and lets the workers read it together and acknowledge what they
// have handled.
func startWatermill(workers int, handle func(load.Args)) (*system, error) {
	s, messages, err := watermillSystem()
	if err != nil {
		return nil, err
	}
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for m := range messages {
				a, err := decode(m.Payload)
				if err != nil {
					fmt.Fprintln(os.Stderr, err) // the run fails by its deadline, for want of the job
					continue
				}
				handle(a)
				m.Ack()
			}
		})
	}
	stop := s.close
	s.close = func() error {
		err := stop()
		group.Wait()
		return err
	}
	return s, nil
}

// holdWatermill subscribes and does not read.
func holdWatermill(int) (*system, error) {
	s, _, err := watermillSystem()
	return s, err
}

func watermillSystem() (*system, <-chan *message.Message, error) {
	pubsub := gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: channelSize},
		watermill.NopLogger{})
	messages, err := pubsub.Subscribe(context.Background(), topic)
	if err != nil {
		return nil, nil, err
	}
	return &system{
		enqueue: load.Each(func(_ context.Context, a load.Args) error {
			b, err := encode(a)
			if err != nil {
				return err
			}
			return pubsub.Publish(topic, message.NewMessage(watermill.NewUUID(), b))
		}),
		close: pubsub.Close,
	}, messages, nil
}
