//! A rust-libp2p peer that a test drives: one JSON request per line on stdin, one JSON answer per
//! line on stdout. The options of the peer are the first argument, as JSON:
//!
//!   key        "ed25519", "ecdsa" or "secp256k1"
//!   scoring    whether peers are scored, with rust's defaults
//!   record     whether identify carries the signed peer record, in rust's older form
//!   noMesh     whether to keep no mesh, so that others are reached by gossip alone
//!   history    for how many heartbeats messages are gossiped about
//!   listen     where to listen; with /p2p-circuit behind a relay's ticket, to be reached through it
//!   beRelay    whether to be a relay
//!   reach      whether to punch holes, and to tell who can be dialled

use std::{collections::HashMap, error::Error, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use futures::StreamExt;
use libp2p::{
    Multiaddr, PeerId, Swarm, SwarmBuilder, autonat,
    core::ConnectedPoint,
    dcutr, gossipsub, identify,
    identity::Keypair,
    multiaddr::Protocol,
    noise, ping, relay,
    swarm::{
        ConnectionId, DialError, NetworkBehaviour, SwarmEvent, behaviour::toggle::Toggle,
        dial_opts::DialOpts,
    },
    tcp, yamux,
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

type Failure = Box<dyn Error + Send + Sync>;

#[derive(NetworkBehaviour)]
struct Behaviour {
    gossipsub: gossipsub::Behaviour,
    identify: identify::Behaviour,
    ping: ping::Behaviour,
    relayed: relay::client::Behaviour,
    relay: Toggle<relay::Behaviour>,
    dcutr: Toggle<dcutr::Behaviour>,
    asking: Toggle<autonat::v2::client::Behaviour>,
    dialling: Toggle<autonat::v2::server::Behaviour>,
}

/// The peer, and what it has seen.
struct Partner {
    swarm: Swarm<Behaviour>,
    received: HashMap<String, Vec<Value>>,
    identified: HashMap<String, Value>,
    pinged: HashMap<PeerId, u128>,
    scores: HashMap<PeerId, f64>,
    connections: HashMap<ConnectionId, (PeerId, Multiaddr)>,
    /// Relays that limit what they carry.
    limited: HashMap<PeerId, bool>,
    be_relay: bool,
    /// Requests whose answer is not there yet.
    waiting: Vec<Value>,
}

fn keypair(kind: &str) -> Keypair {
    match kind {
        "ecdsa" => Keypair::generate_ecdsa(),
        "secp256k1" => Keypair::generate_secp256k1(),
        _ => Keypair::generate_ed25519(),
    }
}

fn router(key: &Keypair, options: &Value) -> Result<gossipsub::Behaviour, Failure> {
    let mut config = gossipsub::ConfigBuilder::default();
    // By default the first heartbeat comes after five seconds.
    config.heartbeat_initial_delay(Duration::from_millis(100));
    if options["noMesh"] == true {
        config
            .mesh_n(0)
            .mesh_n_low(0)
            .mesh_n_high(0)
            .mesh_outbound_min(0)
            .retain_scores(0);
        config.flood_publish(false);
    }
    if let Some(heartbeats) = options["history"].as_u64() {
        config
            .history_gossip(heartbeats as usize)
            .history_length(heartbeats as usize + 10);
    }
    let authenticity = gossipsub::MessageAuthenticity::Signed(key.clone());
    let mut router = gossipsub::Behaviour::new(authenticity, config.build()?)?;
    if options["scoring"] == true {
        let mut parameters = gossipsub::PeerScoreParams::default();
        // Every peer of these tests has the same address.
        parameters.ip_colocation_factor_weight = 0.0;
        router.with_peer_score(parameters, gossipsub::PeerScoreThresholds::default())?;
    }
    Ok(router)
}

fn describe(key: &Keypair, options: &Value) -> identify::Behaviour {
    let version = "ipfs/0.1.0".to_string();
    identify::Behaviour::new(match options["record"] == true {
        true => identify::Config::new_with_signed_peer_record(version, key),
        false => identify::Config::new(version, key.public()),
    })
}

fn text<'a>(request: &'a Value, name: &str) -> &'a str {
    request[name].as_str().unwrap_or_default()
}

impl Partner {
    fn gossipsub(&mut self) -> &mut gossipsub::Behaviour {
        &mut self.swarm.behaviour_mut().gossipsub
    }

    /// Carry out a request; nothing when its answer must be waited for.
    fn answer(&mut self, request: &Value) -> Result<Option<Value>, Failure> {
        let topic = gossipsub::IdentTopic::new(text(request, "topic"));
        let hash = topic.hash();
        let count = request["count"].as_u64().unwrap_or_default() as usize;
        let done = |holds: bool| Ok(holds.then_some(Value::Null));
        match text(request, "request") {
            "about" => {
                let id = *self.swarm.local_peer_id();
                let own = |address: &Multiaddr| format!("{address}/p2p/{id}");
                let direct = |address: &&Multiaddr| relay_of(address).is_none();
                let tickets: Vec<String> = self.swarm.listeners().filter(direct).map(own).collect();
                let about = json!({"id": id.to_string(), "tickets": tickets});
                Ok((!tickets.is_empty()).then_some(about))
            }
            "dial" => {
                let ticket: Multiaddr = text(request, "ticket").parse()?;
                let peer: PeerId = text(request, "ticket")
                    .rsplit('/')
                    .next()
                    .unwrap()
                    .parse()?;
                if request["dialled"].is_null() {
                    let options = DialOpts::peer_id(peer).addresses(vec![ticket]).build();
                    match self.swarm.dial(options) {
                        // It is connected or being dialled, as a relay is that has our place.
                        Ok(()) | Err(DialError::DialPeerConditionFalse(_)) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                done(self.swarm.is_connected(&peer))
            }
            "subscribe" => {
                self.gossipsub().subscribe(&topic)?;
                done(true)
            }
            "waitForSubscribers" => {
                let peers = self.gossipsub().all_peers();
                done(peers.filter(|(_, topics)| topics.contains(&&hash)).count() >= count)
            }
            "publish" => {
                for message in request["messages"].as_array().unwrap() {
                    let data = BASE64.decode(message.as_str().unwrap())?;
                    self.gossipsub().publish(topic.clone(), data)?;
                }
                done(true)
            }
            "waitForMessages" => done(self.had(request).len() >= count),
            "received" => Ok(Some(Value::Array(self.had(request)))),
            "mesh" => {
                let peers = self.gossipsub().mesh_peers(&hash);
                Ok(Some(peers.map(|peer| peer.to_string()).collect()))
            }
            "waitForMesh" => done(self.gossipsub().mesh_peers(&hash).count() >= count),
            "scores" => {
                let scores = self.scores.iter();
                Ok(Some(
                    scores
                        .map(|(peer, score)| (peer.to_string(), json!(score)))
                        .collect(),
                ))
            }
            "ping" => {
                let peer: PeerId = text(request, "ticket")
                    .rsplit('/')
                    .next()
                    .unwrap()
                    .parse()?;
                Ok(self
                    .pinged
                    .get(&peer)
                    .map(|taken| json!({"milliseconds": *taken as u64})))
            }
            "reserved" => done(self.swarm.listeners().any(|each| relay_of(each).is_some())),
            "reachable" => Ok(Some(
                self.swarm.external_addresses().map(|each| json!(each)).collect(),
            )),
            "connections" => {
                let peer: PeerId = text(request, "peer").parse()?;
                let own = self.connections.values().filter(|(whose, _)| *whose == peer);
                let limited = |address| {
                    relay_of(address).is_some_and(|relay| self.limited.get(&relay) == Some(&true))
                };
                Ok(Some(
                    own.map(|(_, address)| json!({"address": address, "limited": limited(address)}))
                        .collect(),
                ))
            }
            "identified" => Ok(self.identified.get(text(request, "peer")).cloned()),
            other => Err(format!("no request {other}").into()),
        }
    }

    fn had(&self, request: &Value) -> Vec<Value> {
        self.received
            .get(text(request, "topic"))
            .cloned()
            .unwrap_or_default()
    }

    /// Answer every request that can be answered now.
    fn look(&mut self) {
        for mut request in std::mem::take(&mut self.waiting) {
            match self.answer(&request) {
                Ok(None) => {
                    request["dialled"] = json!(true);
                    self.waiting.push(request);
                }
                Ok(Some(result)) => println!("{}", json!({"id": request["id"], "result": result})),
                Err(error) => {
                    println!(
                        "{}",
                        json!({"id": request["id"], "error": error.to_string()})
                    );
                }
            }
        }
    }

    fn note_scores(&mut self) {
        let router = &self.swarm.behaviour().gossipsub;
        for (peer, _) in router.all_peers() {
            if let Some(score) = router.peer_score(peer) {
                let lowest = self.scores.entry(*peer).or_insert(score);
                *lowest = lowest.min(score);
            }
        }
    }

    fn take(&mut self, event: BehaviourEvent) {
        match event {
            BehaviourEvent::Gossipsub(gossipsub::Event::Message { message, .. }) => {
                let author = message.source.map(|peer| peer.to_string());
                let came = json!({"author": author, "data": BASE64.encode(message.data)});
                self.received
                    .entry(message.topic.into_string())
                    .or_default()
                    .push(came);
            }
            BehaviourEvent::Identify(identify::Event::Received { peer_id, info, .. }) => {
                let said = json!({
                    "agent": info.agent_version,
                    "listen": info.listen_addrs,
                    "protocols": info.protocols.iter().map(|each| each.as_ref()).collect::<Vec<_>>(),
                });
                self.identified.insert(peer_id.to_string(), said);
            }
            BehaviourEvent::Ping(ping::Event {
                peer,
                result: Ok(taken),
                ..
            }) => {
                self.pinged.insert(peer, taken.as_millis());
            }
            BehaviourEvent::Relayed(relay::client::Event::OutboundCircuitEstablished {
                relay_peer_id,
                limit,
            }) => {
                self.limited.insert(relay_peer_id, limit.is_some());
            }
            _ => {}
        }
    }
}

/// The relay of an address, if it has one.
fn relay_of(address: &Multiaddr) -> Option<PeerId> {
    let mut relay = None;
    for part in address.iter() {
        match part {
            Protocol::P2p(peer) => relay = Some(peer),
            Protocol::P2pCircuit => return relay,
            _ => {}
        }
    }
    None
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let options: Value = serde_json::from_str(&std::env::args().nth(1).unwrap())?;
    let swarm = SwarmBuilder::with_existing_identity(keypair(text(&options, "key")))
        .with_tokio()
        .with_tcp(
            tcp::Config::default(),
            noise::Config::new,
            yamux::Config::default,
        )?
        .with_relay_client(noise::Config::new, yamux::Config::default)?
        .with_behaviour(|key, relayed| {
            let id = key.public().to_peer_id();
            let reach = options["reach"] == true;
            let relay = || relay::Behaviour::new(id, relay::Config::default());
            Ok(Behaviour {
                gossipsub: router(key, &options)?,
                identify: describe(key, &options),
                ping: ping::Behaviour::default(),
                relayed,
                relay: (options["beRelay"] == true).then(relay).into(),
                dcutr: reach.then(|| dcutr::Behaviour::new(id)).into(),
                asking: reach.then(autonat::v2::client::Behaviour::default).into(),
                dialling: reach.then(autonat::v2::server::Behaviour::default).into(),
            })
        })?
        // By default a connection without streams is closed after ten seconds.
        .with_swarm_config(|config| config.with_idle_connection_timeout(Duration::from_secs(600)))
        .build();
    let mut partner = Partner {
        swarm,
        received: HashMap::new(),
        identified: HashMap::new(),
        pinged: HashMap::new(),
        scores: HashMap::new(),
        connections: HashMap::new(),
        limited: HashMap::new(),
        be_relay: options["beRelay"] == true,
        waiting: Vec::new(),
    };
    let loopback = vec![json!("/ip4/127.0.0.1/tcp/0")];
    for address in options["listen"].as_array().unwrap_or(&loopback) {
        partner.swarm.listen_on(address.as_str().unwrap().parse()?)?;
    }
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut often = tokio::time::interval(Duration::from_millis(20));
    loop {
        tokio::select! {
            line = lines.next_line() => match line? {
                Some(line) => {
                    partner.waiting.push(serde_json::from_str(&line)?);
                    partner.look();
                }
                None => return Ok(()),
            },
            event = partner.swarm.select_next_some() => match event {
                SwarmEvent::Behaviour(event) => partner.take(event),
                SwarmEvent::NewListenAddr { address, .. } if partner.be_relay => {
                    partner.swarm.add_external_address(address);
                }
                SwarmEvent::ConnectionEstablished { peer_id, connection_id, endpoint, .. } => {
                    let address = match endpoint {
                        ConnectedPoint::Dialer { address, .. } => address,
                        ConnectedPoint::Listener { local_addr, send_back_addr } => {
                            match relay_of(&local_addr) {
                                Some(_) => local_addr,
                                None => send_back_addr,
                            }
                        }
                    };
                    partner.connections.insert(connection_id, (peer_id, address));
                }
                SwarmEvent::ConnectionClosed { connection_id, .. } => {
                    partner.connections.remove(&connection_id);
                }
                _ => {}
            },
            _ = often.tick() => {
                partner.note_scores();
                partner.look();
            }
        }
    }
}
