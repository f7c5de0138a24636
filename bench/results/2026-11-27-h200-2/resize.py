"""Functions of the op case resize_by_scales_antialias (resize.ptx), compiled by `ptxas -arch=sm_90 -O0` to -O3 into FOLDER/r0.cubin to r3.cubin,
against numbers of NumPy: resize.py FOLDER. Needs cupy and a GPU."""
import sys, numpy as np, math
x=np.random.default_rng(1).standard_normal((23,9)).astype(np.float16); sc=np.array([0.3,0.55],np.float32)
def taps(n,out,s,at):
    s=float(s); pos=(at+0.5)/s-0.5; base=math.ceil(pos)-1; fr=pos-base; st=s if s<1 else 1.0
    first=math.floor(-1.0/st)+1; cnt=2-2*first; r=[]
    for i in range(cnt):
        d=abs((first+i-fr)*st); r.append((min(max(base+first+i,0),n-1), max(0.0,1-d)))
    t=sum(w for _,w in r); return [(int(p),w/t) for p,w in r]
ref=np.zeros((6,4))
for i in range(6):
    for j in range(4):
        ref[i,j]=sum(w*sum(v*float(x[p,q]) for q,v in taps(9,4,sc[1],j)) for p,w in taps(23,6,sc[0],i))
import cupy as cp
for o in (0,1,2,3):
    m=cp.RawModule(path=f'{sys.argv[1]}/r{o}.cubin')
    for n in ('resize_strided_1ba6bfe501dbd367','resize_strided_a058908d077aedc1'):
        f=m.get_function(n); y=cp.full((6,4),7,np.float16); f((1,),(256,),(cp.asarray(x),cp.asarray(sc),y)); cp.cuda.Device().synchronize()
        g=y.get().astype(float); print('O%d'%o,n[-6:],'regs',f.num_regs,'local',f.local_size_bytes,'maxdiff',np.abs(g-ref).max(), 'wrong',[(i,round(g.flat[i],3),round(ref.flat[i],3)) for i in range(24) if abs(g.flat[i]-ref.flat[i])>0.01],flush=True)
