package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"
)

// sayEvery is how often a worker process says how many jobs have run.
const sayEvery = 2 * time.Millisecond

// workIfTold makes this process a worker if it was started as one, and does not return
// then. It is for main to call first.
func workIfTold() {
	text := os.Getenv(envOrder)
	if text == "" {
		return
	}
	if err := work(context.Background(), text); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func work(ctx context.Context, text string) (err error) {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	c, release, err := o.contender(ctx)
	if err != nil {
		return err
	}
	defer release()
	s, ok := c.(Sharer)
	if !ok {
		return fmt.Errorf("%s does not share", o.Name)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.Join(ctx); err != nil {
		return err
	}
	fmt.Println("ready")
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil {
		return nil // told to end before it was told to start
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	var ran atomic.Int64
	go func() {
		for ctx.Err() == nil {
			if n := ran.Swap(0); n > 0 {
				fmt.Println(n)
			}
			wall.Sleep(sayEvery)
		}
	}()
	return s.Work(ctx, func() { ran.Add(1) })
}
