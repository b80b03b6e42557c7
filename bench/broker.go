package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/twmb/franz-go/pkg/kfake"
)

// serveBroker runs kfake until its standard input ends, which it does when the parent dies. It prints its address.
func serveBroker(ctx context.Context, _ job, stdout io.Writer) error {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		return fmt.Errorf("start kfake: %w", err)
	}
	defer cluster.Close()
	if _, err := fmt.Fprintln(stdout, cluster.ListenAddrs()[0]); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		close(ended)
	}()
	select {
	case <-ctx.Done():
	case <-ended:
	}
	return nil
}
