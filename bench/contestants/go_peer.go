// go-libp2p as a contestant: `go_peer NODES`, built with the pins of tests/interop/go.
//
// The commands are those of stage.py. Everything is as go-libp2p-pubsub has it by default, but for
// queues long enough not to drop what a burst brings, and flood publishing, because the publisher
// of a row sends to all subscribers itself.
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/libp2p/go-libp2p"
	pubsub "github.com/libp2p/go-libp2p-pubsub"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/multiformats/go-multiaddr"
)

const (
	topicName = "bench"
	size      = 1024
	window    = 64
	queue     = 4096
)

type command struct {
	Do    string  `json:"do"`
	Links [][]any `json:"links"`
	Nodes []int   `json:"nodes"`
	Node  int     `json:"node"`
	Peers int     `json:"peers"`
	Count int     `json:"count"`
	Rate  float64 `json:"rate"`
}

// count has the deliveries of all nodes of this process; who publishes does not count its own.
type count struct {
	lock               sync.Mutex
	publisher          int
	received, repeated int
	latencies          []float64
	seen               map[[2]uint64]bool
}

func (c *count) begin() {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.received, c.repeated, c.latencies = 0, 0, []float64{}
	c.seen = map[[2]uint64]bool{}
}

func (c *count) take(node int, data []byte) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if node == c.publisher {
		return
	}
	due := math.Float64frombits(binary.LittleEndian.Uint64(data))
	key := [2]uint64{uint64(node), binary.LittleEndian.Uint64(data[8:])}
	if c.seen[key] {
		c.repeated++
		return
	}
	c.seen[key] = true
	c.received++
	c.latencies = append(c.latencies, now()-due)
}

func now() float64 { return float64(time.Now().UnixNano()) / 1e9 }

func payload(due float64, number int) []byte {
	data := make([]byte, size)
	binary.LittleEndian.PutUint64(data, math.Float64bits(due))
	binary.LittleEndian.PutUint64(data[8:], uint64(number))
	return data
}

type node struct {
	host   host.Host
	pubsub *pubsub.PubSub
	topic  *pubsub.Topic
}

func newNode(ctx context.Context) (*node, error) {
	made, err := libp2p.New(
		libp2p.ListenAddrStrings("/ip4/127.0.0.1/tcp/0"),
		libp2p.ResourceManager(&network.NullResourceManager{}),
		libp2p.DisableRelay(),
	)
	if err != nil {
		return nil, err
	}
	router, err := pubsub.NewGossipSub(ctx, made,
		pubsub.WithFloodPublish(true),
		pubsub.WithPeerOutboundQueueSize(queue),
		pubsub.WithValidateQueueSize(queue),
	)
	if err != nil {
		return nil, err
	}
	topic, err := router.Join(topicName)
	return &node{made, router, topic}, err
}

func (n *node) subscribe(ctx context.Context, number int, counted *count) error {
	subscription, err := n.topic.Subscribe(pubsub.WithBufferSize(100_000))
	if err != nil {
		return err
	}
	go func() {
		for {
			message, err := subscription.Next(ctx)
			if err != nil {
				return
			}
			counted.take(number, message.Data)
		}
	}()
	return nil
}

func (n *node) connect(ctx context.Context, ticket string) error {
	address, err := multiaddr.NewMultiaddr(ticket)
	if err != nil {
		return err
	}
	info, err := peer.AddrInfoFromP2pAddr(address)
	if err != nil {
		return err
	}
	return n.host.Connect(ctx, *info)
}

// ticks is a clock that ticks so often a second, at once first, as in stage.py: Go's own timers can
// be a millisecond late too.
func ticks(rate float64) (<-chan struct{}, func() error, error) {
	clock, _, failure := syscall.Syscall(syscall.SYS_TIMERFD_CREATE, 1, syscall.O_NONBLOCK, 0)
	if failure != 0 {
		return nil, nil, failure
	}
	each := int64(math.Round(1e9 / rate))
	times := [4]int64{each / 1e9, each % 1e9, 0, 1}
	_, _, failure = syscall.Syscall6(
		syscall.SYS_TIMERFD_SETTIME, clock, 0, uintptr(unsafe.Pointer(&times)), 0, 0, 0)
	if failure != 0 {
		return nil, nil, failure
	}
	file, ticked := os.NewFile(clock, "clock"), make(chan struct{}, window)
	go func() {
		came := make([]byte, 8)
		for {
			if _, err := file.Read(came); err != nil {
				return
			}
			for range binary.NativeEndian.Uint64(came) {
				ticked <- struct{}{}
			}
		}
	}()
	return ticked, file.Close, nil
}

// publish keeps a pace, or does not pause; it returns how long it took.
func (n *node) publish(ctx context.Context, messages int, rate float64) (float64, error) {
	var tick <-chan struct{}
	if rate > 0 {
		clock, stop, err := ticks(rate)
		if err != nil {
			return 0, err
		}
		tick = clock
		defer func() { _ = stop() }()
	}
	start := now()
	next := atomic.Int64{}
	failures := make(chan error, window)
	for range window {
		go func() {
			var failure error
			for failure == nil {
				number := int(next.Add(1)) - 1
				if number >= messages {
					break
				}
				due := now()
				if rate > 0 {
					due = start + float64(number)/rate
					<-tick
				}
				failure = n.topic.Publish(ctx, payload(due, number))
			}
			failures <- failure
		}()
	}
	var failure error
	for range window {
		if each := <-failures; each != nil {
			failure = each
		}
	}
	return now() - start, failure
}

func cpuSeconds() float64 {
	usage := syscall.Rusage{}
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

func residentBytes() int64 {
	var whole, resident int64
	data, _ := os.ReadFile("/proc/self/statm")
	_, _ = fmt.Sscan(string(data), &whole, &resident)
	return resident * int64(os.Getpagesize())
}

func obey(ctx context.Context, nodes []*node, counted *count, c command) (map[string]any, error) {
	switch c.Do {
	case "tickets":
		tickets := []string{}
		for _, each := range nodes {
			tickets = append(tickets, fmt.Sprintf("%s/p2p/%s", each.host.Addrs()[0], each.host.ID()))
		}
		return map[string]any{"tickets": tickets}, nil
	case "connect":
		for _, link := range c.Links {
			if err := nodes[int(link[0].(float64))].connect(ctx, link[1].(string)); err != nil {
				return nil, err
			}
		}
	case "subscribe":
		for _, number := range c.Nodes {
			if err := nodes[number].subscribe(ctx, number, counted); err != nil {
				return nil, err
			}
		}
	case "ready":
		for len(nodes[c.Node].pubsub.ListPeers(topicName)) < c.Peers {
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(3 * time.Second) // until the mesh stands
	case "publish":
		counted.lock.Lock()
		counted.publisher = c.Node
		counted.lock.Unlock()
		seconds, err := nodes[c.Node].publish(ctx, c.Count, c.Rate)
		return map[string]any{"seconds": seconds}, err
	case "begin":
		counted.begin()
	case "stats":
		counted.lock.Lock()
		defer counted.lock.Unlock()
		return map[string]any{
			"cpu": cpuSeconds(), "rss": residentBytes(),
			"received": counted.received, "repeated": counted.repeated,
		}, nil
	case "latencies":
		counted.lock.Lock()
		defer counted.lock.Unlock()
		return map[string]any{"latencies": counted.latencies}, nil
	}
	return map[string]any{}, nil
}

func run() error {
	ctx := context.Background()
	many, err := strconv.Atoi(os.Args[1])
	if err != nil {
		return err
	}
	nodes := []*node{}
	for range many {
		made, err := newNode(ctx)
		if err != nil {
			return err
		}
		nodes = append(nodes, made)
	}
	counted := &count{publisher: -1}
	counted.begin()
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	answers := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		asked := command{}
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			return err
		}
		answer, err := obey(ctx, nodes, counted, asked)
		if err != nil {
			return err
		}
		if err := answers.Encode(answer); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
