// A go-libp2p peer that a test drives: one JSON request per line on stdin, one JSON answer per line
// on stdout. The options of the peer are the first argument, as JSON; see `options`.
package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p"
	pubsub "github.com/libp2p/go-libp2p-pubsub"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/client"
	"github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/relay"
	"github.com/libp2p/go-libp2p/p2p/protocol/ping"
	"github.com/multiformats/go-multiaddr"
)

type options struct {
	// "gossipsub" or "floodsub".
	Router string `json:"router"`
	// The pubsub protocol ids to speak, best first; the router's own when missing.
	Protocols []protocol.ID `json:"protocols"`
	// "ed25519", "ecdsa", "secp256k1" or "rsa".
	Key string `json:"key"`
	// Where to listen; on a port of TCP when missing.
	Listen []string `json:"listen"`
	// Degrees and histories of GossipSub that differ from the defaults.
	NoMesh  bool `json:"noMesh"`
	History int  `json:"history"`
	// Whether to be a relay for everybody, without limits; and whether to be reached through relays,
	// to punch holes, and to ask and answer who can be dialled.
	BeRelay bool `json:"beRelay"`
	Reach   bool `json:"reach"`
	// Whether peers are scored, with the weights that rust and js have by default.
	Scoring bool `json:"scoring"`
}

type received struct {
	Author string `json:"author"`
	Data   []byte `json:"data"`
}

type request struct {
	ID       int      `json:"id"`
	Request  string   `json:"request"`
	Ticket   string   `json:"ticket"`
	Topic    string   `json:"topic"`
	Peer     string   `json:"peer"`
	Count    int      `json:"count"`
	Messages [][]byte `json:"messages"`
	Rate     float64  `json:"rate"`
}

// partner is the peer, and what it has seen.
type partner struct {
	host   host.Host
	pubsub *pubsub.PubSub
	trace  *meshes

	lock     sync.Mutex
	topics   map[string]*pubsub.Topic
	received map[string][]received
	scores   map[string]float64
}

// meshes keeps the mesh of each topic, as the router traces it.
type meshes struct {
	lock  sync.Mutex
	links map[string]map[peer.ID]bool
}

func (m *meshes) set(topic string, p peer.ID, linked bool) {
	m.lock.Lock()
	defer m.lock.Unlock()
	if m.links[topic] == nil {
		m.links[topic] = map[peer.ID]bool{}
	}
	if linked {
		m.links[topic][p] = true
	} else {
		delete(m.links[topic], p)
	}
}

func (m *meshes) of(topic string) []string {
	m.lock.Lock()
	defer m.lock.Unlock()
	names := []string{}
	for p := range m.links[topic] {
		names = append(names, p.String())
	}
	return names
}

func (m *meshes) Graft(p peer.ID, topic string) { m.set(topic, p, true) }
func (m *meshes) Prune(p peer.ID, topic string) { m.set(topic, p, false) }

func (m *meshes) OnClosedOutboundStream(p peer.ID) {
	m.lock.Lock()
	defer m.lock.Unlock()
	for _, links := range m.links {
		delete(links, p)
	}
}

func (m *meshes) OnNewOutboundStream(peer.ID, protocol.ID) {}
func (m *meshes) Join(string)                              {}
func (m *meshes) Leave(string)                             {}
func (m *meshes) ValidateMessage(*pubsub.Message)          {}
func (m *meshes) DeliverMessage(*pubsub.Message)           {}
func (m *meshes) RejectMessage(*pubsub.Message, string)    {}
func (m *meshes) DuplicateMessage(*pubsub.Message)         {}
func (m *meshes) ThrottlePeer(peer.ID)                     {}
func (m *meshes) RecvRPC(*pubsub.RPC)                      {}
func (m *meshes) SendRPC(*pubsub.RPC, peer.ID)             {}
func (m *meshes) DropRPC(*pubsub.RPC, peer.ID)             {}
func (m *meshes) UndeliverableMessage(*pubsub.Message)     {}

func newKey(kind string) (crypto.PrivKey, error) {
	kinds := map[string]int{
		"": crypto.Ed25519, "ed25519": crypto.Ed25519, "ecdsa": crypto.ECDSA,
		"secp256k1": crypto.Secp256k1, "rsa": crypto.RSA,
	}
	key, _, err := crypto.GenerateKeyPairWithReader(kinds[kind], 2048, rand.Reader)
	return key, err
}

func (p *partner) routerOptions(o options) []pubsub.Option {
	parameters := pubsub.DefaultGossipSubParams()
	if o.NoMesh {
		parameters.D, parameters.Dlo, parameters.Dhi = 0, 0, 0
		parameters.Dout, parameters.Dscore = 0, 0
	}
	if o.History > 0 {
		parameters.HistoryGossip, parameters.HistoryLength = o.History, o.History+10
	}
	chosen := []pubsub.Option{
		pubsub.WithGossipSubParams(parameters),
		pubsub.WithRawTracer(p.trace),
		// Its own queues drop what comes faster than it is taken.
		pubsub.WithPeerOutboundQueueSize(4096),
		pubsub.WithValidateQueueSize(4096),
	}
	if o.Protocols != nil {
		features := pubsub.GossipSubDefaultFeatures
		chosen = append(chosen, pubsub.WithGossipSubProtocols(o.Protocols, features))
	}
	if o.Scoring {
		chosen = append(chosen, p.scoring()...)
	}
	return chosen
}

func (p *partner) scoring() []pubsub.Option {
	parameters := &pubsub.PeerScoreParams{
		AppSpecificScore:       func(peer.ID) float64 { return 0 },
		AppSpecificWeight:      10,
		BehaviourPenaltyWeight: -10,
		BehaviourPenaltyDecay:  0.9,
		DecayInterval:          time.Second,
		DecayToZero:            0.1,
		RetainScore:            time.Hour,
		Topics:                 map[string]*pubsub.TopicScoreParams{},
	}
	thresholds := &pubsub.PeerScoreThresholds{
		GossipThreshold: -10, PublishThreshold: -50, GraylistThreshold: -80,
	}
	inspect := func(scores map[peer.ID]float64) {
		p.lock.Lock()
		defer p.lock.Unlock()
		for id, score := range scores {
			if lowest, known := p.scores[id.String()]; !known || score < lowest {
				p.scores[id.String()] = score
			}
		}
	}
	return []pubsub.Option{
		pubsub.WithPeerScore(parameters, thresholds),
		pubsub.WithPeerScoreInspect(inspect, 100*time.Millisecond),
	}
}

func newPartner(ctx context.Context, o options) (*partner, error) {
	p := &partner{
		trace:    &meshes{links: map[string]map[peer.ID]bool{}},
		topics:   map[string]*pubsub.Topic{},
		received: map[string][]received{},
		scores:   map[string]float64{},
	}
	key, err := newKey(o.Key)
	if err != nil {
		return nil, err
	}
	if o.Listen == nil {
		o.Listen = []string{"/ip4/127.0.0.1/tcp/0"}
	}
	chosen := []libp2p.Option{
		libp2p.Identity(key),
		libp2p.ListenAddrStrings(o.Listen...),
		libp2p.ResourceManager(&network.NullResourceManager{}),
	}
	if o.BeRelay {
		service := libp2p.EnableRelayService(relay.WithInfiniteLimits())
		chosen = append(chosen, service, libp2p.ForceReachabilityPublic())
	}
	if o.Reach {
		chosen = append(chosen, libp2p.EnableHolePunching(), libp2p.EnableAutoNATv2())
	}
	if !o.BeRelay && !o.Reach {
		chosen = append(chosen, libp2p.DisableRelay())
	}
	p.host, err = libp2p.New(chosen...)
	if err != nil {
		return nil, err
	}
	if o.Router == "floodsub" {
		p.pubsub, err = pubsub.NewFloodSub(ctx, p.host)
	} else {
		p.pubsub, err = pubsub.NewGossipSub(ctx, p.host, p.routerOptions(o)...)
	}
	return p, err
}

// until waits for a condition, which is looked at now and then.
func until(holds func() bool) {
	for !holds() {
		time.Sleep(10 * time.Millisecond)
	}
}

func (p *partner) topic(name string) (*pubsub.Topic, error) {
	p.lock.Lock()
	defer p.lock.Unlock()
	if topic := p.topics[name]; topic != nil {
		return topic, nil
	}
	topic, err := p.pubsub.Join(name)
	if err == nil {
		p.topics[name] = topic
	}
	return topic, err
}

func (p *partner) subscribe(ctx context.Context, name string) error {
	topic, err := p.topic(name)
	if err != nil {
		return err
	}
	subscription, err := topic.Subscribe(pubsub.WithBufferSize(100_000))
	if err != nil {
		return err
	}
	go func() {
		for {
			message, err := subscription.Next(ctx)
			if err != nil {
				return
			}
			if message.ReceivedFrom == p.host.ID() {
				continue
			}
			p.lock.Lock()
			p.received[name] = append(p.received[name], received{message.GetFrom().String(), message.Data})
			p.lock.Unlock()
		}
	}()
	return nil
}

func (p *partner) have(topic string) []received {
	p.lock.Lock()
	defer p.lock.Unlock()
	return append([]received{}, p.received[topic]...)
}

func addressOf(ticket string) (*peer.AddrInfo, error) {
	address, err := multiaddr.NewMultiaddr(ticket)
	if err != nil {
		return nil, err
	}
	return peer.AddrInfoFromP2pAddr(address)
}

type stream struct {
	Direction string      `json:"direction"`
	Protocol  protocol.ID `json:"protocol"`
}

func (p *partner) streams(name string) []stream {
	found := []stream{}
	for _, connection := range p.host.Network().Conns() {
		if connection.RemotePeer().String() != name {
			continue
		}
		for _, each := range connection.GetStreams() {
			spoken := string(each.Protocol())
			if strings.HasPrefix(spoken, "/meshsub/") || strings.HasPrefix(spoken, "/floodsub/") {
				direction := strings.ToLower(each.Stat().Direction.String())
				found = append(found, stream{direction, each.Protocol()})
			}
		}
	}
	return found
}

func (p *partner) identified(name string) (any, error) {
	id, err := peer.Decode(name)
	if err != nil {
		return nil, err
	}
	store := p.host.Peerstore()
	until(func() bool { agent, err := store.Get(id, "AgentVersion"); return err == nil && agent != "" })
	agent, _ := store.Get(id, "AgentVersion")
	protocols, err := store.GetProtocols(id)
	return map[string]any{"agent": agent, "protocols": protocols, "listen": store.Addrs(id)}, err
}

func (p *partner) answer(ctx context.Context, r request) (any, error) {
	switch r.Request {
	case "about":
		tickets := []string{}
		for _, address := range p.host.Addrs() {
			tickets = append(tickets, fmt.Sprintf("%s/p2p/%s", address, p.host.ID()))
		}
		return map[string]any{"id": p.host.ID().String(), "tickets": tickets}, nil
	case "dial":
		address, err := addressOf(r.Ticket)
		if err != nil {
			return nil, err
		}
		return nil, p.host.Connect(network.WithAllowLimitedConn(ctx, "test"), *address)
	case "reserve":
		address, err := addressOf(r.Ticket)
		if err != nil {
			return nil, err
		}
		granted, err := client.Reserve(ctx, p.host, *address)
		if err != nil {
			return nil, err
		}
		return map[string]any{"bytes": granted.LimitData, "voucher": granted.Voucher != nil}, nil
	case "connections":
		found := []map[string]any{}
		for _, each := range p.host.Network().Conns() {
			if each.RemotePeer().String() == r.Peer {
				address := each.RemoteMultiaddr().String()
				found = append(found, map[string]any{"address": address, "limited": each.Stat().Limited})
			}
		}
		return found, nil
	case "reachable":
		found := []string{}
		if known, told := p.host.(interface {
			ConfirmedAddrs() (a, b, c []multiaddr.Multiaddr)
		}); told {
			reachable, _, _ := known.ConfirmedAddrs()
			for _, address := range reachable {
				found = append(found, address.String())
			}
		}
		return found, nil
	case "subscribe":
		return nil, p.subscribe(ctx, r.Topic)
	case "waitForSubscribers":
		until(func() bool { return len(p.pubsub.ListPeers(r.Topic)) >= r.Count })
		return nil, nil
	case "publish":
		topic, err := p.topic(r.Topic)
		for _, message := range r.Messages {
			if err == nil {
				err = topic.Publish(ctx, message)
			}
			if r.Rate > 0 {
				time.Sleep(time.Duration(float64(time.Second) / r.Rate))
			}
		}
		return nil, err
	case "waitForMessages":
		until(func() bool { return len(p.have(r.Topic)) >= r.Count })
		return nil, nil
	case "received":
		return p.have(r.Topic), nil
	case "mesh":
		return p.trace.of(r.Topic), nil
	case "waitForMesh":
		until(func() bool { return len(p.trace.of(r.Topic)) >= r.Count })
		return nil, nil
	case "streams":
		return p.streams(r.Peer), nil
	case "scores":
		p.lock.Lock()
		defer p.lock.Unlock()
		lowest := map[string]float64{}
		for name, score := range p.scores {
			lowest[name] = score
		}
		return lowest, nil
	case "ping":
		address, err := addressOf(r.Ticket)
		if err != nil {
			return nil, err
		}
		result := <-ping.Ping(network.WithAllowLimitedConn(ctx, "test"), p.host, address.ID)
		return map[string]any{"milliseconds": result.RTT.Milliseconds()}, result.Error
	case "identified":
		return p.identified(r.Peer)
	}
	return nil, fmt.Errorf("no request %q", r.Request)
}

func main() {
	var chosen options
	if err := json.Unmarshal([]byte(os.Args[1]), &chosen); err != nil {
		panic(err)
	}
	ctx := context.Background()
	p, err := newPartner(ctx, chosen)
	if err != nil {
		panic(err)
	}
	var writing sync.Mutex
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		go func() {
			var r request
			reply := map[string]any{}
			if err := json.Unmarshal(line, &r); err != nil {
				panic(err)
			}
			reply["id"] = r.ID
			if result, err := p.answer(ctx, r); err != nil {
				reply["error"] = err.Error()
			} else {
				reply["result"] = result
			}
			encoded, err := json.Marshal(reply)
			if err != nil {
				panic(err)
			}
			writing.Lock()
			defer writing.Unlock()
			os.Stdout.Write(append(encoded, '\n'))
		}()
	}
	p.host.Close()
}
