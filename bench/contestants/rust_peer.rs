//! rust-libp2p as a contestant: `rust_peer NODES`, built with the pins of tests/interop/rust.
//!
//! The commands are those of stage.py. Everything is as libp2p-gossipsub has it by default: floods
//! what it publishes, queues of 5,000. Each node is a task that owns its swarm, on a runtime with
//! one thread for each core; who publishes is a thread that keeps the pace and hands messages over.

use std::{
    collections::{HashMap, HashSet},
    env,
    error::Error,
    fs, mem, process,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use futures::{
    SinkExt, StreamExt,
    channel::{mpsc, oneshot},
    executor::block_on,
};
use libp2p::{
    Multiaddr, PeerId, Swarm, SwarmBuilder, gossipsub, identify,
    multiaddr::Protocol,
    noise,
    swarm::{NetworkBehaviour, SwarmEvent, dial_opts::DialOpts},
    tcp, yamux,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    time::sleep,
};

const TOPIC: &str = "bench";
const SIZE: usize = 1024;
const WINDOW: usize = 64;

type Failure = Box<dyn Error + Send + Sync>;

/// The deliveries of all nodes of this process; who publishes does not count its own.
#[derive(Default)]
struct Count {
    publisher: Option<usize>,
    received: usize,
    repeated: usize,
    latencies: Vec<f64>,
    seen: HashSet<(usize, u64)>,
}

impl Count {
    fn begin(&mut self) {
        *self = Count { publisher: self.publisher, ..Count::default() };
    }

    fn take(&mut self, node: usize, data: &[u8]) {
        if self.publisher == Some(node) {
            return;
        }
        let due = f64::from_le_bytes(data[..8].try_into().unwrap());
        let number = u64::from_le_bytes(data[8..16].try_into().unwrap());
        if !self.seen.insert((node, number)) {
            self.repeated += 1;
            return;
        }
        self.received += 1;
        self.latencies.push(now() - due);
    }
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

fn payload(due: f64, number: usize) -> Vec<u8> {
    let mut data = vec![0; SIZE];
    data[..8].copy_from_slice(&due.to_le_bytes());
    data[8..16].copy_from_slice(&(number as u64).to_le_bytes());
    data
}

#[derive(NetworkBehaviour)]
struct Behaviour {
    gossipsub: gossipsub::Behaviour,
    identify: identify::Behaviour,
}

/// What a node's task is asked for.
enum Ask {
    Dial(Multiaddr, oneshot::Sender<()>),
    Subscribe,
    Subscribers(oneshot::Sender<usize>),
    Publish(Vec<u8>),
    /// To answer when everything before it is done.
    Flush(oneshot::Sender<()>),
}

struct Node {
    number: usize,
    swarm: Swarm<Behaviour>,
    count: Arc<Mutex<Count>>,
    dialling: HashMap<PeerId, oneshot::Sender<()>>,
}

impl Node {
    fn new(number: usize, count: Arc<Mutex<Count>>) -> Result<Node, Failure> {
        let mut swarm = SwarmBuilder::with_new_identity()
            .with_tokio()
            .with_tcp(tcp::Config::default(), noise::Config::new, yamux::Config::default)?
            .with_behaviour(|key| {
                let signed = gossipsub::MessageAuthenticity::Signed(key.clone());
                let config = gossipsub::Config::default();
                let about = identify::Config::new("ipfs/0.1.0".to_string(), key.public());
                Ok(Behaviour {
                    gossipsub: gossipsub::Behaviour::new(signed, config)?,
                    identify: identify::Behaviour::new(about),
                })
            })?
            // By default a connection outside of every mesh is closed after ten seconds.
            .with_swarm_config(|config| config.with_idle_connection_timeout(Duration::from_secs(600)))
            .build();
        swarm.listen_on("/ip4/127.0.0.1/tcp/0".parse()?)?;
        Ok(Node { number, swarm, count, dialling: HashMap::new() })
    }

    async fn ticket(&mut self) -> String {
        loop {
            if let SwarmEvent::NewListenAddr { address, .. } = self.swarm.select_next_some().await {
                return format!("{address}/p2p/{}", self.swarm.local_peer_id());
            }
        }
    }

    async fn run(mut self, mut asked: mpsc::Receiver<Ask>) {
        loop {
            let done = tokio::select! {
                ask = asked.next() => match ask {
                    Some(ask) => self.obey(ask),
                    None => return,
                },
                event = self.swarm.select_next_some() => self.see(event),
            };
            if let Err(error) = done {
                eprintln!("node {}: {error}", self.number);
                process::exit(1);
            }
        }
    }

    fn obey(&mut self, ask: Ask) -> Result<(), Failure> {
        let topic = gossipsub::IdentTopic::new(TOPIC);
        let router = &mut self.swarm.behaviour_mut().gossipsub;
        match ask {
            Ask::Dial(ticket, done) => {
                let Some(Protocol::P2p(peer)) = ticket.iter().last() else {
                    return Err(format!("{ticket} names no peer").into());
                };
                if self.swarm.is_connected(&peer) {
                    let _ = done.send(());
                    return Ok(());
                }
                self.dialling.insert(peer, done);
                self.swarm.dial(DialOpts::peer_id(peer).addresses(vec![ticket]).build())?;
            }
            Ask::Subscribe => {
                router.subscribe(&topic)?;
            }
            Ask::Subscribers(found) => {
                let hash = topic.hash();
                let peers = router.all_peers().filter(|(_, topics)| topics.contains(&&hash));
                let _ = found.send(peers.count());
            }
            Ask::Publish(data) => match router.publish(topic, data) {
                // Nobody gets it, which shows in what arrives.
                Ok(_) | Err(gossipsub::PublishError::AllQueuesFull(_)) => {}
                Err(error) => return Err(error.into()),
            },
            Ask::Flush(done) => {
                let _ = done.send(());
            }
        }
        Ok(())
    }

    fn see(&mut self, event: SwarmEvent<BehaviourEvent>) -> Result<(), Failure> {
        match event {
            SwarmEvent::Behaviour(BehaviourEvent::Gossipsub(gossipsub::Event::Message {
                message, ..
            })) => self.count.lock().unwrap().take(self.number, &message.data),
            SwarmEvent::ConnectionEstablished { peer_id, .. } => {
                if let Some(done) = self.dialling.remove(&peer_id) {
                    let _ = done.send(());
                }
            }
            SwarmEvent::OutgoingConnectionError { error, .. } => return Err(error.into()),
            _ => {}
        }
        Ok(())
    }
}

/// Keep a pace, or do not pause; return how long it took.
fn publish(mut node: mpsc::Sender<Ask>, messages: usize, rate: f64) -> Result<f64, Failure> {
    let start = now();
    for number in 0..messages {
        let mut due = now();
        if rate > 0.0 {
            let early = start + number as f64 / rate - due;
            due += early;
            thread::sleep(Duration::from_secs_f64(early.max(0.0)));
        }
        block_on(node.send(Ask::Publish(payload(due, number))))?;
    }
    let (done, published) = oneshot::channel();
    block_on(node.send(Ask::Flush(done)))?;
    block_on(published)?;
    Ok(now() - start)
}

fn cpu_seconds() -> f64 {
    // SAFETY: a `rusage` of zeroes is valid, and the call fills in no other memory.
    let usage = unsafe {
        let mut usage: libc::rusage = mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

fn resident_bytes() -> Result<usize, Failure> {
    let pages = fs::read_to_string("/proc/self/statm")?;
    // SAFETY: the call takes and touches no memory.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    Ok(pages.split(' ').nth(1).unwrap_or_default().parse::<usize>()? * size)
}

fn whole(command: &Value, name: &str) -> usize {
    command[name].as_u64().unwrap_or_default() as usize
}

async fn obey(
    nodes: &mut [mpsc::Sender<Ask>],
    tickets: &[String],
    count: &Mutex<Count>,
    command: &Value,
) -> Result<Value, Failure> {
    let node = whole(command, "node");
    let none = Vec::new();
    match command["do"].as_str().unwrap_or_default() {
        "tickets" => return Ok(json!({"tickets": tickets})),
        "connect" => {
            for link in command["links"].as_array().unwrap_or(&none) {
                let ticket = link[1].as_str().unwrap_or_default().parse()?;
                let (done, connected) = oneshot::channel();
                let from = link[0].as_u64().unwrap_or_default() as usize;
                nodes[from].send(Ask::Dial(ticket, done)).await?;
                connected.await?;
            }
        }
        "subscribe" => {
            for number in command["nodes"].as_array().unwrap_or(&none) {
                let number = number.as_u64().unwrap_or_default() as usize;
                nodes[number].send(Ask::Subscribe).await?;
            }
        }
        "ready" => {
            loop {
                let (found, subscribers) = oneshot::channel();
                nodes[node].send(Ask::Subscribers(found)).await?;
                if subscribers.await? >= whole(command, "peers") {
                    break;
                }
                sleep(Duration::from_millis(20)).await;
            }
            sleep(Duration::from_secs(3)).await; // until the mesh stands
        }
        "publish" => {
            count.lock().unwrap().publisher = Some(node);
            let (messages, rate) = (whole(command, "count"), command["rate"].as_f64());
            let publisher = nodes[node].clone();
            let work = move || publish(publisher, messages, rate.unwrap_or_default());
            let seconds = tokio::task::spawn_blocking(work).await??;
            return Ok(json!({"seconds": seconds}));
        }
        "begin" => count.lock().unwrap().begin(),
        "stats" => {
            let count = count.lock().unwrap();
            return Ok(json!({
                "cpu": cpu_seconds(), "rss": resident_bytes()?,
                "received": count.received, "repeated": count.repeated,
            }));
        }
        "latencies" => return Ok(json!({"latencies": count.lock().unwrap().latencies})),
        other => return Err(format!("no command {other:?}").into()),
    }
    Ok(json!({}))
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let many: usize = env::args().nth(1).ok_or("how many nodes?")?.parse()?;
    let count = Arc::new(Mutex::new(Count::default()));
    let (mut nodes, mut tickets) = (Vec::new(), Vec::new());
    for number in 0..many {
        let mut node = Node::new(number, count.clone())?;
        tickets.push(node.ticket().await);
        let (sender, asked) = mpsc::channel(WINDOW);
        tokio::spawn(node.run(asked));
        nodes.push(sender);
    }
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let command = serde_json::from_str(&line)?;
        println!("{}", obey(&mut nodes, &tickets, &count, &command).await?);
    }
    Ok(())
}
