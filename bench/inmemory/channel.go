package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"

	"github.com/ojsengine/ojs/bench/internal/load"
)

// channelSize is small against the number of jobs, as the buffer of a program would be.
const channelSize = 1024

// startChannel is the ceiling: a buffered channel that goroutines read. It tracks
// nothing.
func startChannel(workers int, handle func(load.Args)) (*system, error) {
	return channel(workers, channelSize, func(a load.Args) (load.Args, error) { return a, nil },
		func(a load.Args) error {
			handle(a)
			return nil
		}), nil
}

// startChannelJSON is the floor of every engine that stores its args: the channel, and
// one round trip through encoding/json.
func startChannelJSON(workers int, handle func(load.Args)) (*system, error) {
	return channel(workers, channelSize, encode, func(b []byte) error {
		a, err := decode(b)
		if err == nil {
			handle(a)
		}
		return err
	}), nil
}

func holdChannel(jobs int) (*system, error) {
	return channel(0, jobs, func(a load.Args) (load.Args, error) { return a, nil }, nil), nil
}

func holdChannelJSON(jobs int) (*system, error) { return channel(0, jobs, encode, nil), nil }

func channel[M any](workers, size int, send func(load.Args) (M, error), receive func(M) error) *system {
	messages := make(chan M, size)
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for m := range messages {
				if err := receive(m); err != nil {
					fmt.Fprintln(os.Stderr, err) // the run fails by its deadline, for want of the job
				}
			}
		})
	}
	return &system{
		enqueue: load.Each(func(ctx context.Context, a load.Args) error {
			m, err := send(a)
			if err != nil {
				return err
			}
			messages <- m
			return nil
		}),
		close: func() error {
			close(messages)
			group.Wait()
			return nil
		},
	}
}

func encode(a load.Args) ([]byte, error) { return json.Marshal(a) }

func decode(b []byte) (a load.Args, err error) {
	err = json.Unmarshal(b, &a)
	return a, err
}
